<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\NativeStatics;
use Pronghorn\Internal\StaticProperties;

/**
 * Static properties of classes as they are now, to take them back there after each call: what a
 * framework keeps of a request outside of its container, such as macros and the clock of tests.
 *
 * A class that is loaded later goes back to what its properties are declared with, as if it were
 * loaded by the next call. Nothing deeper: an object in a property is the same object again, as it
 * is by then; {@see objects()} gives those for a {@see Snapshot}. Static variables of functions
 * stay. A typed property that had no value is without one again with the extension alone.
 */
final class Statics
{
    private function __construct(private readonly NativeStatics|StaticProperties $properties)
    {
    }

    /**
     * @param list<string> $of beginnings of the names of classes
     * @param list<string> $without beginnings of those among them that stay as they are
     */
    public static function of(array $of, array $without = []): self
    {
        return new self(\class_exists(NativeStatics::class, false)
            ? new NativeStatics($of, $without)
            : new StaticProperties($of, $without));
    }

    /**
     * The objects in them, as they were kept, also those in arrays.
     *
     * @return list<object>
     */
    public function objects(): array
    {
        return $this->properties->objects();
    }

    /**
     * Any number of times. A destructor of what goes that throws does so here.
     *
     * @return bool whether anything had changed, and so destructors may have run and changed more
     */
    public function restore(): bool
    {
        return $this->properties->restore();
    }
}
