<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Keeps static properties for {@see \Pronghorn\Statics}. The extension has the same, and looks at
 * what has changed alone.
 */
final class StaticProperties
{
    /** Levels of arrays in arrays; one may contain itself. */
    private const DEPTH = 8;

    /** @var array<string, int> classes that were looked at, by name */
    private array $known = [];
    /** @var list<array{\ReflectionProperty, mixed}> what goes back, and to what */
    private array $kept = [];

    /**
     * @param list<string> $of beginnings of the names of classes
     * @param list<string> $without beginnings of those among them that stay as they are
     */
    public function __construct(private readonly array $of, private readonly array $without)
    {
        foreach ($this->unknown() as $class) {
            foreach (self::declaredBy($class) as $property) {
                if ($property->isInitialized()) {
                    $this->kept[] = [$property, $property->getValue()];
                }
            }
        }
    }

    /** @return list<object> */
    public function objects(): array
    {
        $objects = [];
        $look = static function (mixed $value, int $depth) use (&$look, &$objects): void {
            if (\is_object($value)) {
                $objects[] = $value;
            } elseif (\is_array($value) && $depth > 0) {
                foreach ($value as $inner) {
                    $look($inner, $depth - 1);
                }
            }
        };
        $look(\array_column($this->kept, 1), self::DEPTH);

        return $objects;
    }

    /** @return bool whether anything had changed */
    public function restore(): bool
    {
        foreach ($this->unknown() as $class) {
            foreach (self::declaredBy($class) as $property) {
                if ($property->hasDefaultValue()) {
                    $this->kept[] = [$property, $property->getDefaultValue()];
                }
            }
        }
        $hasChanged = false;
        foreach ($this->kept as [$property, $value]) {
            if (!$property->isInitialized() || !Properties::areSame($property->getValue(), $value)) {
                $property->setValue(null, $value);
                $hasChanged = true;
            }
        }

        return $hasChanged;
    }

    /**
     * Classes that were not there at the last look.
     *
     * @return list<class-string>
     */
    private function unknown(): array
    {
        $all = \get_declared_classes();
        if (\count($all) === \count($this->known)) {
            return [];
        }
        $names = \array_flip($all);
        $new = \array_keys(\array_diff_key($names, $this->known));
        $this->known = $names;

        return \array_values(\array_filter($new, fn (string $class): bool
            => self::begins($class, $this->of) && !self::begins($class, $this->without)));
    }

    /** @param list<string> $prefixes */
    private static function begins(string $class, array $prefixes): bool
    {
        foreach ($prefixes as $prefix) {
            if (\str_starts_with($class, $prefix)) {
                return true;
            }
        }

        return false;
    }

    /**
     * Properties of a parent are looked at with it.
     *
     * @param class-string $class
     * @return list<\ReflectionProperty>
     */
    private static function declaredBy(string $class): array
    {
        $all = (new \ReflectionClass($class))->getProperties(\ReflectionProperty::IS_STATIC);

        return \array_values(\array_filter(
            $all,
            static fn (\ReflectionProperty $property): bool => $property->class === $class,
        ));
    }
}
