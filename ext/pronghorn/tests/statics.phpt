--TEST--
Static properties go back: also to having no value, of classes that come later, through references, and destructors run when all is back
--EXTENSIONS--
pronghorn
--FILE--
<?php
namespace Kept;

use Pronghorn\Internal\NativeStatics;

const WORD = 'evaluated late';

class Noisy
{
    public function __destruct()
    {
        echo 'destroyed: ', Early::$list[0] ?? 'none', ', ', Early::own(), "\n";
    }
}

class Ancestor
{
    protected static int $own = 1;
    public static array $inherited = [];

    public static function own(?int $own = null): int
    {
        return self::$own = $own ?? self::$own;
    }
}

class Early extends Ancestor
{
    public static ?array $list = ['boot'];
    public static int $typed;
    public static ?object $object = null;
    public static mixed $any = null;

    public static function look(): string
    {
        $typed = isset(self::$typed) ? self::$typed : 'no value';

        return json_encode([self::$list, $typed, self::$object, self::$any, self::own(), self::$inherited]) . "\n";
    }
}

final class Excepted
{
    public static int $number = 1;
}

trait Shared
{
    public static array $macros = [];
}

Early::$any = str_repeat('kept', 2);
Early::$object = new \ArrayObject();
$statics = new NativeStatics(['Kept\\'], ['Kept\\Excepted']);
var_dump($statics->objects() === [Early::$object]);
echo $before = Early::look();

for ($request = 1; $request <= 3; $request++) {
    if ($request === 2) {
        // One lies in the table of classes since this file was compiled, and is linked now.
        class Later extends Early
        {
            use Shared;

            public static array $words = [WORD, self::class];
            public static \Closure|string $unset;
        }
        Later::$words[] = 'of a request';
        Later::$macros['of'] = 'a request';
        Later::$unset = 'set';
    }
    Early::$list = ['of a request'];
    Early::$typed = $request;
    Early::$object = new Noisy();
    Early::own(7);
    Early::$inherited[] = $request;
    $reference = &Early::$any;
    $reference = 'through a reference';
    if ($request === 3) {
        $typed = &Early::$typed;
        $typed = 9;
    }
    Excepted::$number = 2;
    $statics->restore();
    var_dump(Early::look() === $before, $reference, Excepted::$number);
}
echo json_encode([Later::$words, Later::$macros]), "\n";
var_dump((new \ReflectionProperty(Later::class, 'unset'))->isInitialized());
Later::$words = [];
$statics->restore();
echo json_encode(Later::$words), "\n";
$typed = 'no type any more';

eval('namespace Kept; class Evaluated { public static array $list = [MISSING]; public static int $number = 5; }');
try {
    Evaluated::$number = 6;
} catch (\Error $error) {
    echo $error->getMessage(), "\n";
}
$statics->restore();
class_alias(Early::class, 'Kept\\Alias');
Alias::$list = null;
$statics->restore();
echo json_encode(Early::$list), "\n";

foreach ([[[1], []], [['a'], [null]]] as $wrong) {
    try {
        new NativeStatics(...$wrong);
    } catch (\TypeError $error) {
        echo $error->getMessage(), "\n";
    }
}
try {
    $statics->__construct([], []);
} catch (\Error $error) {
    echo $error->getMessage(), "\n";
}

// It does not grow.
for ($i = 0; $i < 1000; $i++) {
    Early::$list = [str_repeat('x', 100)];
    Early::$object = new \stdClass();
    $statics->restore();
    $first ??= memory_get_usage();
}
var_dump(memory_get_usage() - $first < 1000);
?>
--EXPECT--
bool(true)
[["boot"],"no value",{},"keptkept",1,[]]
destroyed: boot, 1
bool(true)
string(8) "keptkept"
int(2)
destroyed: boot, 1
bool(true)
string(8) "keptkept"
int(2)
destroyed: boot, 1
bool(true)
string(8) "keptkept"
int(2)
[["evaluated late","Kept\\Later"],[]]
bool(false)
["evaluated late","Kept\\Later"]
Undefined constant "Kept\MISSING"
["boot"]
Pronghorn\Internal\NativeStatics::__construct(): Argument #1 ($of) must be a list of strings, int in it
Pronghorn\Internal\NativeStatics::__construct(): Argument #2 ($without) must be a list of strings, null in it
It has them already
bool(true)
