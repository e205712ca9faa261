<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** A series of a metric, as far as this process has changed it. */
abstract class Counted
{
    private const NAME = '/^[a-zA-Z_:][a-zA-Z0-9_:]*$/D';
    private const LABEL = '/^(?!__)[a-zA-Z_][a-zA-Z0-9_]*$/D';
    /** Bytes of the value of a label: the server takes no longer ones. */
    private const LONGEST = 1024;
    /** Objects that are kept to be given out again. */
    private const MOST = 4096;

    /** @var array<string, self> */
    private static array $known = [];

    protected bool $isPending = false;

    /** @param array<string, string> $labels */
    final private function __construct(
        private readonly string $name,
        private readonly array $labels,
        private readonly string $help,
    ) {
    }

    /**
     * The object for it, the same each time.
     *
     * @internal
     * @template T of self
     * @param class-string<T> $class
     * @param array<string, string|\Stringable|int|float|bool> $labels
     * @param list<int|float> $buckets
     * @return T
     */
    final public static function series(
        string $class,
        string $name,
        array $labels,
        string $help,
        array $buckets = [],
    ): self {
        $key = "$class $name " . \implode(' ', $buckets);
        foreach ($labels as $label => $value) {
            $value = \is_bool($value) ? ($value ? 'true' : 'false') : (string) $value;
            $labels[$label] = $value = \strlen($value) > self::LONGEST ? Failure::cut($value, self::LONGEST) : $value;
            $key .= "\0$label\0$value";
        }
        $series = self::$known[$key] ?? null;
        if ($series === null) {
            self::expect(self::NAME, $name, 'metric');
            foreach ($labels as $label => $_) {
                self::expect(self::LABEL, (string) $label, 'label');
            }
            $series = new $class($name, $labels, $help);
            $series->begin($buckets);
            if (\count(self::$known) >= self::MOST) {
                self::$known = [];
            }
            self::$known[$key] = $series;
        }

        return $series;
    }

    /**
     * Its changes, as the server reads them; from now on there are none.
     *
     * @internal
     * @return array<string, mixed>
     */
    final public function change(): array
    {
        $this->isPending = false;

        return ['name' => $this->name, 'help' => $this->help, 'labels' => (object) $this->labels] + $this->take();
    }

    /** @return array<string, mixed> */
    abstract protected function take(): array;

    /** @param list<int|float> $buckets */
    protected function begin(array $buckets): void
    {
    }

    final protected function changed(): void
    {
        $this->isPending = Counts::add($this);
    }

    final protected static function finite(int|float $value): float
    {
        if (!\is_finite($value)) {
            throw new \InvalidArgumentException("A metric takes finite numbers: $value is none.");
        }

        return (float) $value;
    }

    private static function expect(string $pattern, string $name, string $of): void
    {
        if (!\preg_match($pattern, $name)) {
            $shown = Failure::cut($name, 100);
            $start = $of === 'label' ? 'a digit or `__`' : 'a digit';
            throw new \InvalidArgumentException(
                "`$shown` can't name a $of: write letters, digits and `_`, and do not begin with $start."
            );
        }
    }
}
