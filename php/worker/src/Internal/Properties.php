<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What properties of objects were, for {@see \Pronghorn\Snapshot}. The extension has the same, a
 * twentieth as slow.
 */
final class Properties
{
    /** @var list<\Closure(): void> */
    private array $steps = [];

    /** @param array<object> $objects */
    public function __construct(array $objects)
    {
        foreach ($objects as $object) {
            if (\PHP_VERSION_ID >= 80400) {
                $object = (new \ReflectionClass($object))->initializeLazyObject($object);
            }
            $this->keepUndeclared($object);
            $known = [];
            $class = new \ReflectionClass($object);
            while ($class !== false && !$class->isInternal()) {
                $this->keepDeclared($object, $class, $known);
                $class = $class->getParentClass();
            }
        }
    }

    public function restore(): void
    {
        foreach ($this->steps as $step) {
            $step();
        }
    }

    /** @param array<string, true> $known of classes below this one, which have redeclared them */
    private function keepDeclared(object $object, \ReflectionClass $class, array &$known): void
    {
        $values = $absent = [];
        foreach ($class->getProperties() as $property) {
            $name = $property->name;
            $declared = $property->class === $class->name && $property->isDefault() && !isset($known[$name]);
            if (!$declared || $property->isStatic() || $property->isReadOnly()) {
                continue;
            }
            if (!$property->isPrivate()) {
                $known[$name] = true;
            }
            if (\PHP_VERSION_ID >= 80400 && $property->hasHooks()) {
                $this->keepHooked($object, $property);
            } elseif ($property->isInitialized($object)) {
                $values[$name] = $property->getValue($object);
            } else {
                $absent[] = $property;
            }
        }
        if ($values === [] && $absent === []) {
            return;
        }
        $this->steps[] = \Closure::bind(function () use ($values, $absent): void {
            foreach ($values as $name => $value) {
                $this->$name = $value;
            }
            foreach ($absent as $property) {
                // To unset one that is not there would be to ask __get() for it from then on.
                if ($property->isInitialized($this)) {
                    unset($this->{$property->name});
                }
            }
        }, $object, $class->name);
    }

    /** Behind its hooks. */
    private function keepHooked(object $object, \ReflectionProperty $property): void
    {
        if (!$property->isVirtual() && $property->isInitialized($object)) {
            $value = $property->getRawValue($object);
            $this->steps[] = static fn () => $property->setRawValue($object, $value);
        }
    }

    private function keepUndeclared(object $object): void
    {
        $values = self::undeclared($object);
        if ($values === [] && !self::allowsUndeclared($object)) {
            return;
        }
        $this->steps[] = static function () use ($object, $values): void {
            foreach (\array_diff_key(self::undeclared($object), $values) as $name => $_) {
                unset($object->$name);
            }
            foreach ($values as $name => $value) {
                $object->$name = $value;
            }
        };
    }

    /** @return array<array-key, mixed> */
    private static function undeclared(object $object): array
    {
        $values = [];
        foreach ((new \ReflectionObject($object))->getProperties() as $property) {
            if (!$property->isDefault()) {
                $values[$property->name] = $property->getValue($object);
            }
        }

        return $values;
    }

    private static function allowsUndeclared(object $object): bool
    {
        $class = new \ReflectionClass($object);
        while ($class !== false && $class->name !== \stdClass::class) {
            if ($class->getAttributes(\AllowDynamicProperties::class) !== []) {
                return true;
            }
            $class = $class->getParentClass();
        }

        return $class !== false;
    }
}
