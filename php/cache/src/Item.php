<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Psr\Cache\CacheItemInterface;

/** An entry as PSR-6 has it, of a {@see Pool}. */
final class Item implements CacheItemInterface
{
    /** Seconds since 1970; null for no end. */
    private ?float $ends = null;
    /** @var array<string, true> */
    private array $tags = [];

    /** @internal */
    public function __construct(
        private readonly string $key,
        private mixed $value = null,
        private readonly bool $isHit = false,
    ) {
    }

    public function getKey(): string
    {
        return $this->key;
    }

    public function get(): mixed
    {
        return $this->value;
    }

    public function isHit(): bool
    {
        return $this->isHit;
    }

    public function set($value): static
    {
        $this->value = $value;

        return $this;
    }

    /** @param ?\DateTimeInterface $expiration null for no end */
    public function expiresAt($expiration): static
    {
        if ($expiration !== null && !$expiration instanceof \DateTimeInterface) {
            throw new InvalidItem('A moment is a DateTimeInterface or null.');
        }
        $this->ends = $expiration === null ? null : (float) $expiration->format('U.u');

        return $this;
    }

    /** @param int|\DateInterval|null $time seconds; null for no end */
    public function expiresAfter($time): static
    {
        if ($time !== null && !\is_int($time) && !$time instanceof \DateInterval) {
            throw new InvalidItem('A time to live is seconds, a DateInterval or null.');
        }
        if ($time instanceof \DateInterval) {
            return $this->expiresAt((new \DateTimeImmutable())->add($time));
        }
        $this->ends = $time === null ? null : \microtime(true) + $time;

        return $this;
    }

    /**
     * It is there until one of its tags is invalidated, too: {@see Pool::invalidateTags}. As
     * Symfony's items have it; an item that is read has none until it is given some.
     *
     * @param string|iterable<string> $tags
     */
    public function tag(string|iterable $tags): static
    {
        foreach (\is_string($tags) ? [$tags] : $tags as $tag) {
            $this->tags[$tag] = true;
        }

        return $this;
    }

    /**
     * @internal
     * @return list<string>
     */
    public function tags(): array
    {
        return \array_map(\strval(...), \array_keys($this->tags));
    }

    /**
     * Seconds for which it is kept from now on; null for no end.
     *
     * @internal
     */
    public function left(): ?float
    {
        return $this->ends === null ? null : $this->ends - \microtime(true);
    }
}
