--TEST--
Whether anything had changed: not what is the same in another array or text, and what destructors change is seen by the next look
--EXTENSIONS--
pronghorn
--FILE--
<?php
namespace Kept;

use Pronghorn\Internal\NativeProperties;
use Pronghorn\Internal\NativeStatics;

class Thing
{
    public array $list = [];
    public ?string $text = null;
    public float $number = NAN;
    public ?object $object = null;
    public int $typed;
    public static array $all = [];
    public static ?Thing $thing = null;
}

class Late
{
    public function __construct(private \Closure $end)
    {
    }

    public function __destruct()
    {
        ($this->end)();
    }
}

$thing = new Thing();
$thing->text = str_repeat('text', 2);
$open = (object) ['list' => [[1], NAN], 'text' => str_repeat('text', 3)];
$properties = new NativeProperties([$thing, $open]);
$statics = new NativeStatics(['Kept\\'], []);
$look = static function (string $what) use ($properties, $statics): void {
    echo "$what: ";
    var_dump($properties->restore() | $statics->restore());
};
$look('nothing');

$thing->list[] = 1;
array_pop($thing->list);
$thing->text = str_repeat('text', 2);
$open->list[] = 1;
array_pop($open->list);
$open->text = str_repeat('text', 3);
Thing::$all['a'] = 1;
unset(Thing::$all['a']);
$look('copies');

$thing->typed = 1;
$look('a value');
$look('then');
unset($thing->text);
$look('none');
$open->more = 1;
$look('one more');
unset($open->text);
$look('one less');
$shared = &$open->text;
$shared = 'shared';
$look('a reference');
Thing::$all = [[1]];
$look('a static property');

$thing->object = new Late(fn () => Thing::$all = $thing->list = [1]);
$look('a destructor');
Thing::$thing = new Thing();
Thing::$thing->object = new Late(fn () => $thing->typed = 2);
$look('of a static property');
$look('behind it');
$look('then');
$itself = [1];
$itself[] = &$itself;
$thing->list = $itself;
$look('an array in itself');
$look('then');

Thing::$all = [[$thing], ['inner' => &$thing]];
var_dump((new NativeStatics(['Kept\\'], []))->objects() === [$thing, $thing]);
?>
--EXPECT--
nothing: int(0)
copies: int(0)
a value: int(1)
then: int(0)
none: int(1)
one more: int(1)
one less: int(1)
a reference: int(1)
a static property: int(1)
a destructor: int(1)
of a static property: int(1)
behind it: int(1)
then: int(0)
an array in itself: int(1)
then: int(0)
bool(true)
