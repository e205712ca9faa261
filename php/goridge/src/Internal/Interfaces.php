<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** Interfaces of PSR, without Composer: where distributions put them, or what is lacking. */
final class Interfaces
{
    /**
     * @param class-string $class that is to be loaded, and implements the interface
     * @throws \LogicException when there is none, with what to type
     */
    public static function expect(string $class, string $interface, string $package): void
    {
        if (\interface_exists($interface)) {
            return;
        }
        // Below a directory of include_path.
        $there = \stream_resolve_include_path(\dirname(\strtr($interface, '\\', '/')) . '/autoload.php');
        if ($there === false) {
            throw new \LogicException(
                "$class takes the interface $interface, which is not there. hint: `composer require psr/$package`, or"
                    . " `apt-get install php-psr-$package`"
            );
        }
        require_once $there;
    }
}
