--TEST--
Properties go back: without a leak, destructors run when all is back, and nothing gets a type that it may not have
--EXTENSIONS--
pronghorn
--FILE--
<?php
use Pronghorn\Internal\NativeProperties;

#[AllowDynamicProperties]
class Thing
{
    public mixed $any = 'any';
    public ?array $list = [[1], 'two'];
    public int $number = 1;
    public Thing $later;
    private string $text;

    public function fill(): void
    {
        $this->text = str_repeat('text', 2);
    }

    public function __get(string $name): mixed
    {
        return "$name is asked for by __get()\n";
    }
}

class Noisy
{
    public function __construct(private Thing $thing)
    {
    }

    public function __destruct()
    {
        echo "destroyed: {$this->thing->any} {$this->thing->number}\n";
        $this->thing->number = 8;
        throw new Exception('from a destructor');
    }
}

class Narrow
{
    public string $text = 'string';
}

try {
    new NativeProperties([new Thing(), 1]);
} catch (TypeError $error) {
    echo $error->getMessage(), "\n";
}

echo "-- all kinds of values, again and again\n";
$thing = new Thing();
$thing->more = [str_repeat('more', 2)];
$kept = new NativeProperties(['a thing' => $thing, $thing, (object) [], Thing::class => fn () => 1]);
for ($i = 0; $i < 3; $i++) {
    $thing->any = [$thing, str_repeat('any', $i + 1)];
    $thing->list[0][] = $thing;
    $thing->list = $i ? null : $thing->list;
    $thing->number++;
    $thing->later = new Thing();
    $thing->later->later = $thing;
    $thing->fill();
    $thing->more[] = 1;
    $thing->{"number $i"} = new Thing();
    (array) $thing;
    $copy = clone $thing;
    $kept->restore();
}
var_dump($thing);

echo "-- uninitialised, not unset\n";
try {
    $thing->later;
} catch (Error $error) {
    echo $error->getMessage(), "\n";
}

echo "-- a destructor sees what is back, and may throw\n";
$thing->number = 5;
$thing->any = new Noisy($thing);
try {
    $kept->restore();
} catch (Exception $thrown) {
    echo $thrown->getMessage(), ', ', $thing->number, "\n";
}

echo "-- bound to what may hold no such value\n";
$narrow = new Narrow();
$thing->any = 'a string, too';
$thing->any = &$narrow->text;
$alone = new class { public mixed $any = 5.5; };
$other = new NativeProperties([$alone]);
$alone->any = &$narrow->text;
$kept->restore();
var_dump($narrow->text);
try {
    $other->restore();
} catch (TypeError $error) {
    echo $error->getMessage(), "\n";
}
var_dump($alone->any);

echo "-- gone with what holds it\n";
$thing = new Thing();
$thing->any = new NativeProperties([$thing]);
$gone = WeakReference::create($thing);
unset($thing);
gc_collect_cycles();
var_dump($gone->get());
foreach (['serialize', fn ($object) => clone $object, fn ($object) => $object->name = 1] as $forbidden) {
    try {
        $forbidden($kept);
    } catch (Throwable $error) {
        echo $error->getMessage(), "\n";
    }
}
?>
--EXPECTF--
Pronghorn\Internal\NativeProperties::__construct(): Argument #%d ($objects) must be a list of objects, int in it
-- all kinds of values, again and again
object(Thing)#%d (4) {
  ["any"]=>
  string(3) "any"
  ["list"]=>
  array(2) {
    [0]=>
    array(1) {
      [0]=>
      int(1)
    }
    [1]=>
    string(3) "two"
  }
  ["number"]=>
  int(1)
  ["later"]=>
  uninitialized(Thing)
  ["text":"Thing":private]=>
  uninitialized(string)
  ["more"]=>
  array(1) {
    [0]=>
    string(8) "moremore"
  }
}
-- uninitialised, not unset
Typed property Thing::$later must not be accessed before initialization
-- a destructor sees what is back, and may throw
destroyed: any 1
from a destructor, 8
-- bound to what may hold no such value
string(3) "any"
Cannot assign float to reference held by property Narrow::$text of type string
string(3) "any"
-- gone with what holds it
NULL
Serialization of 'Pronghorn\Internal\NativeProperties' is not allowed
Trying to clone an uncloneable object of class Pronghorn\Internal\NativeProperties
Cannot create dynamic property Pronghorn\Internal\NativeProperties::$name
