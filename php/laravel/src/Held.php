<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Container\Container;
use Illuminate\Contracts\Foundation\Application;
use Pronghorn\Snapshot;

/**
 * Finds the objects of an application that others hold, such as the finder in a factory of views,
 * and the maps and lists of PHP in which they hold something.
 */
final class Held
{
    /** Levels of arrays in arrays; one may contain itself. */
    private const DEPTH = 10;
    /**
     * A client that was lost, and made anew by a request, must not come back.
     */
    private const NOT = 'Illuminate\\Redis\\Connections\\';

    /** @var array<int, object> */
    private array $found = [];
    /** @var list<object> */
    private array $open = [];

    /** @param list<string> $of beginnings of the names of classes */
    private function __construct(private readonly array $of)
    {
    }

    /**
     * Those in an array and in properties of those that were found.
     *
     * @param array<mixed> $in
     * @param list<string> $of beginnings of the names of classes
     * @return list<object>
     */
    public static function in(array $in, array $of): array
    {
        $held = new self($of);
        $held->look($in, 0);
        while (($object = \array_pop($held->open)) !== null) {
            // Also private ones, and those of parent classes.
            $held->look(\get_mangled_object_vars($object), 0);
            $held->look(Snapshot::contents($object) ?? [], 0);
        }

        return \array_values($held->found);
    }

    /** The service of this name, if there is one: to make it would change the application. */
    public static function made(Application $app, string $name): ?object
    {
        $look = static fn (): mixed => $app->instances[$app->getAlias($name)] ?? null;
        $made = \Closure::bind($look, null, Container::class)();

        return \is_object($made) ? $made : null;
    }

    /** @param array<mixed> $in */
    private function look(array $in, int $depth): void
    {
        foreach ($in as $value) {
            if (\is_array($value) && $depth < self::DEPTH) {
                $this->look($value, $depth + 1);
            } elseif (\is_object($value) && !isset($this->found[\spl_object_id($value)]) && $this->isOne($value)) {
                $this->found[\spl_object_id($value)] = $this->open[] = $value;
            }
        }
    }

    private function isOne(object $object): bool
    {
        $begins = static fn (string $prefix): bool => \str_starts_with($object::class, $prefix);

        return !$begins(self::NOT) && \array_filter($this->of, $begins) !== [] || self::isOfPhp($object);
    }

    /** A map, list, queue or heap, as PHP has it, or a time that may be set. */
    private static function isOfPhp(object $object): bool
    {
        return $object::class === \stdClass::class
            || (new \ReflectionClass($object))->isInternal() && Snapshot::contents($object) !== null;
    }
}
