<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What properties of objects were, for {@see \Pronghorn\Snapshot}. The extension has the same, a
 * twentieth as slow.
 */
final class Properties
{
    /** @var list<\Closure(): bool> that say whether anything had changed */
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

    /** @return bool whether anything had changed */
    public function restore(): bool
    {
        $hasChanged = false;
        foreach ($this->steps as $step) {
            $hasChanged = $step() || $hasChanged;
        }

        return $hasChanged;
    }

    /** Also where it is no number, which is not the same as itself. */
    public static function areSame(mixed $one, mixed $other): bool
    {
        if ($one === $other) {
            return true;
        }
        if (\is_float($one) && \is_float($other)) {
            return \is_nan($one) && \is_nan($other);
        }
        if (!\is_array($one) || !\is_array($other) || \array_keys($one) !== \array_keys($other)) {
            return false;
        }
        foreach ($one as $key => $value) {
            if (!self::areSame($value, $other[$key])) {
                return false;
            }
        }

        return true;
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
                $values[$name] = [$property, $property->getValue($object)];
            } else {
                $absent[] = $property;
            }
        }
        if ($values !== [] || $absent !== []) {
            $this->keepValues($object, $class, $values, $absent);
        }
    }

    /**
     * @param array<string, array{\ReflectionProperty, mixed}> $values
     * @param list<\ReflectionProperty> $absent
     */
    private function keepValues(object $object, \ReflectionClass $class, array $values, array $absent): void
    {
        $this->steps[] = \Closure::bind(function () use ($values, $absent): bool {
            $hasChanged = false;
            foreach ($values as $name => [$property, $value]) {
                $isThere = $property->isInitialized($this);
                if (!$isThere || !Properties::areSame($property->getValue($this), $value)) {
                    $this->$name = $value;
                    $hasChanged = true;
                }
            }
            foreach ($absent as $property) {
                // To unset one that is not there would be to ask __get() for it from then on.
                if ($property->isInitialized($this)) {
                    unset($this->{$property->name});
                    $hasChanged = true;
                }
            }

            return $hasChanged;
        }, $object, $class->name);
    }

    /** Behind its hooks. */
    private function keepHooked(object $object, \ReflectionProperty $property): void
    {
        if (!$property->isVirtual() && $property->isInitialized($object)) {
            $value = $property->getRawValue($object);
            $this->steps[] = static function () use ($property, $object, $value): bool {
                if ($property->isInitialized($object) && self::areSame($property->getRawValue($object), $value)) {
                    return false;
                }
                $property->setRawValue($object, $value);

                return true;
            };
        }
    }

    private function keepUndeclared(object $object): void
    {
        $values = self::undeclared($object);
        if ($values === [] && !self::allowsUndeclared($object)) {
            return;
        }
        $this->steps[] = static function () use ($object, $values): bool {
            $now = self::undeclared($object);
            $more = \array_diff_key($now, $values);
            foreach ($more as $name => $_) {
                unset($object->$name);
            }
            $hasChanged = $more !== [];
            foreach ($values as $name => $value) {
                if (!\array_key_exists($name, $now) || !self::areSame($now[$name], $value)) {
                    $object->$name = $value;
                    $hasChanged = true;
                }
            }

            return $hasChanged;
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
