<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Contents;
use Pronghorn\Internal\NativeProperties;
use Pronghorn\Internal\Properties;

/**
 * Objects as they are now, to take them back there after each call: a framework's container and the
 * services that it made at the boot, so that what one request left in them is gone before the next.
 *
 * It keeps all properties of the objects that may change: private ones and those of parent classes,
 * too, and what was not initialised. Those that no class declares where the class allows them
 * (`stdClass`, `#[AllowDynamicProperties]`), or where the object has some now. Not static ones, and
 * nothing deeper: an object in a property is the same object again, as it is by then, unless it was
 * given as well. Of objects of PHP itself, what `WeakMap`, `SplObjectStorage`, `ArrayObject`,
 * `ArrayIterator`, `SplFixedArray`, and the lists, queues and heaps of SPL hold inside, the time of
 * a `DateTime`, and not what others do, such as generators. A property that is bound to a reference
 * gets its value through it. One with hooks is set behind them; where it was not initialised, only
 * the extension can take it back.
 */
final class Snapshot
{
    /** @param list<Contents> $contents */
    private function __construct(
        private readonly NativeProperties|Properties $properties,
        private readonly array $contents,
    ) {
    }

    /** What is not made yet of a lazy object is made. */
    public static function of(object ...$objects): self
    {
        $distinct = [];
        foreach ($objects as $object) {
            $distinct[\spl_object_id($object)] = $object;
        }

        return new self(\class_exists(NativeProperties::class, false)
            ? new NativeProperties($distinct)
            : new Properties($distinct), \array_values(\array_filter(\array_map(Contents::of(...), $distinct))));
    }

    /**
     * What an object of PHP itself holds inside, in an array or arrays in it.
     *
     * @return ?list<mixed> null: it is none of those whose contents go back
     */
    public static function contents(object $object): ?array
    {
        return Contents::of($object)?->values();
    }

    /**
     * Any number of times. A destructor of what goes that throws does so here.
     *
     * @return bool whether anything had changed, and so destructors may have run and changed more
     */
    public function restore(): bool
    {
        $hasChanged = $this->properties->restore();
        foreach ($this->contents as $contents) {
            $hasChanged = $contents->restore() || $hasChanged;
        }

        return $hasChanged;
    }
}
