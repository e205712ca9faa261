--TEST--
Properties with hooks go back behind them, and those of lazy objects when these were made
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (PHP_VERSION_ID < 80400) die('skip before PHP 8.4 there are no hooks'); ?>
--FILE--
<?php
use Pronghorn\Internal\NativeProperties;

class Plain
{
    public int $number = 1;
}

class Hooked extends Plain
{
    public int $number = 2 { set => $value * 10; }
    public string $later { set => "set $value"; }
    public string $virtual { get => 'virtual'; }
}

$hooked = new class extends Hooked {};
$ghost = (new ReflectionClass(Plain::class))->newLazyGhost(function (Plain $plain): void { $plain->number = 3; });
$proxy = (new ReflectionClass(Plain::class))->newLazyProxy(fn () => new Plain());
$kept = new NativeProperties([$hooked, $ghost, $proxy]);
for ($i = 0; $i < 2; $i++) {
    [$hooked->number, $hooked->later, $ghost->number, $proxy->number] = [5, 'now', 6, 7];
    $kept->restore();
    var_dump($hooked->number, isset($hooked->later), $ghost->number, $proxy->number);
}
?>
--EXPECT--
int(2)
bool(false)
int(3)
int(1)
int(2)
bool(false)
int(3)
int(1)
