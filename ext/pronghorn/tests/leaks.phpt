--TEST--
Places that calls of one route change each time are found, and others are not
--EXTENSIONS--
pronghorn
--FILE--
<?php
namespace App;

use function Pronghorn\Internal\leaks_look;
use function Pronghorn\Internal\leaks_watch;

class Cart
{
    public static array $items = [];
    public static $owner = null;
    public static float $total = 0.0;
    public static string $text = '';
    public static array $cache = [];
    protected static array $nested = ['a' => ['b' => ['c' => 1]]];
    public static self|null $self = null;
    public array $list = [];
    public int $count = 0;

    static function nest($n) { self::$nested['a']['b']['c'] = $n; }
    static function remember($n) { static $seen = []; $seen[] = $n; }
}
interface Shape { const A = 1; }
enum Suit { case A; case B; }

function call(string $route, callable $do, int $times = 4): void
{
    for ($n = 1; $n <= $times; $n++) {
        $do($n);
        foreach (leaks_look($route) as [$place, $file, $line, $before, $now]) {
            echo "$route: $place ", basename($file), ":$line $before > $now\n";
        }
    }
}

var_dump(leaks_look('before anything is watched'));
$known = new Cart();
leaks_watch(1, true);
call('items', fn ($n) => Cart::$items[] = $n);
call('owner', fn ($n) => Cart::$owner = new \stdClass());
call('total', fn ($n) => Cart::$total += 0.5);
call('text', fn ($n) => Cart::$text = str_repeat('x', $n));
call('nested', fn ($n) => Cart::nest($n + 100));
call('variable', fn ($n) => Cart::remember($n));
call('list', fn ($n) => $known->list[] = $n);
call('global', fn ($n) => $GLOBALS['made'] = "a$n");
call('reference', function ($n) { $GLOBALS['referred'] = $n; $GLOBALS['alias'] = &$GLOBALS['referred']; });
call('locale', fn ($n) => setlocale(LC_CTYPE, $n % 2 ? 'C.UTF-8' : 'C'));
call('handler', fn ($n) => set_error_handler(fn () => false));
// Told once.
call('items', fn ($n) => Cart::$items[] = $n);
// A cache, an object that is made once, a number inside of an object, an enumeration, a closure.
call('cache', fn ($n) => Cart::$cache['key'] ??= $n);
for ($page = 1; $page < 10; $page++) {
    call("page $page", fn ($n) => Cart::$cache["page $page"] = 1, 3);
}
call('lazy', fn ($n) => Cart::$self ??= new Cart());
call('inside', fn ($n) => $known->count++);
call('enum', fn ($n) => $GLOBALS['suit'] = Suit::A);
// Classes and functions that come later.
eval('namespace App; class Late { public static $n = 0; static function up() { self::$n++; } } function late() { static $m = 0; $m++; }');
call('late', fn ($n) => Late::up() ?? late(), 6);
// Another call between is no matter, another route that changes it is.
leaks_watch(1, false);
array_map(fn ($n) => call($n % 2 ? 'odd' : 'even', fn () => Cart::$total = $n / 3, 1), range(1, 5));
// One route changes it, another one does not, and the first once more.
leaks_watch(1, false);
array_map(fn ($n) => call('now and then', fn () => Cart::$total = $n % 3 ? 5.0 * $n : Cart::$total, 1), range(1, 9));
echo "none\n";
// A sample: of each four the last is compared with the third.
leaks_watch(4, false);
call('sample', fn ($n) => Cart::$total++, 12);
// Destructors in circles, and not those of objects that others hold. Each class once.
class Circle { public $self; function __construct() { $this->self = $this; } function __destruct() { echo 'gone '; } }
class Held extends Circle { function __destruct() {} }
class Thrower extends Circle { function __destruct() { throw new \Exception('thrown'); } }
function collect(): void
{
    foreach (\Pronghorn\Internal\leaks_collect() as [$destructor, $file, $line]) {
        echo $destructor, ' ', basename($file), ":$line\n";
    }
}
new Circle();
gc_collect_cycles();
new Circle();
// A sample does not collect.
collect();
leaks_watch(1, false);
$held = new Held();
collect();
new Circle();
collect();
echo "\n";
new Thrower();
try {
    collect();
} catch (\Exception $thrown) {
    echo $thrown->getMessage(), "\n";
}
unset($held);
collect();
// A circle, and more than is looked at.
leaks_watch(1, false);
$known->list = [$known, array_fill(0, 100_000, $known)];
call('circle', fn ($n) => null);
?>
--EXPECTF--
array(0) {
}
items: App\Cart::$items leaks.php:7 array(0) > array(3)
owner: App\Cart::$owner leaks.php:7 null > stdClass
total: App\Cart::$total leaks.php:7 float > float
text: App\Cart::$text leaks.php:7 string(0) > string(3)
nested: App\Cart::$nested leaks.php:7 array(1) > array(1)
variable: static $seen of App\Cart::remember() leaks.php:20 array(0) > array(3)
list: global $known :0 App\Cart > App\Cart
global: global $made :0 string(2) > string(2)
reference: global $referred :0 int > int
reference: global $alias :0 int > int
locale: the locale :0  > 
handler: the handler of errors :3  > 
late: App\Late::$n leaks.php(%d) : eval()'d code:1 int > int
late: static $m of App\late() leaks.php(%d) : eval()'d code:1 int > int
odd: App\Cart::$total leaks.php:7 float > float
none
sample: App\Cart::$total leaks.php:7 float > float
gone gone App\Circle::__destruct() leaks.php:%d
gone 
thrown
App\Held::__destruct() leaks.php:%d
