<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

use Pronghorn\Cache\Store;
use Pronghorn\Call;
use Pronghorn\NotAWorker;

/**
 * The right to compute a value, which one process has at a time. It names its owner, so that others
 * on this machine see that it is dead, and the owner sees that it asks itself.
 */
final class Computing
{
    /** Between the parts of an owner's name. */
    private const BETWEEN = '|';
    /** In place of an owner: the storage did not take what was computed, and nobody waits. */
    private const EACH = '*';

    /** @var array<string, self> those that this process has */
    private static array $mine = [];
    private static bool $hasEnd = false;

    private readonly LockEntry $entry;
    private readonly string $owner;
    private int $free = 0;

    public function __construct(Store $store, string $key, private readonly float $seconds)
    {
        $this->entry = new LockEntry($store, "$key\0computing");
        $this->owner = self::newOwner();
    }

    /** Where nobody has it. */
    public function take(): bool
    {
        return $this->noted($this->entry->take($this->owner, $this->seconds));
    }

    /** In the place of a process that is dead: one of those who try. */
    public function inherit(): bool
    {
        $before = $this->entry->owner();

        return $before !== null && self::isDead($before)
            && $this->noted($this->entry->hand($before, $this->owner, $this->seconds));
    }

    /** Whether a call has it that this one is a part of. */
    public function isOfThisProcess(): bool
    {
        return isset(self::$mine[$this->entry->owner() ?? '']);
    }

    /**
     * Whether there is nobody to wait for: this process has it, or each computes for itself, or
     * nobody has it, at five looks after tries to take it, because the storage does not take it.
     */
    public function isInVain(): bool
    {
        $owner = $this->entry->owner();
        $this->free += (int) ($owner === null);

        return $owner === self::EACH || isset(self::$mine[$owner ?? '']) || $this->free === 5;
    }

    /** By who has taken it. */
    public function give(): void
    {
        unset(self::$mine[$this->owner]);
        $this->entry->give($this->owner);
    }

    /** Lets each process compute for itself from now on: waiting for another one gives nothing. */
    public function share(): void
    {
        unset(self::$mine[$this->owner]);
        $this->entry->hand($this->owner, self::EACH, $this->seconds)
            || $this->entry->renew(self::EACH, $this->seconds);
    }

    /** Ends that: what was computed is kept again. */
    public function unshare(): void
    {
        $this->entry->give(self::EACH);
    }

    private function noted(bool $taken): bool
    {
        if ($taken) {
            self::$mine[$this->owner] = $this;
            self::giveAtTheEnd();
        }

        return $taken;
    }

    /** An `exit` skips even `finally`, and workers with the extension go on after it. */
    private static function giveAtTheEnd(): void
    {
        $pid = \getmypid();
        $give = static function () use ($pid): void {
            if (\getmypid() === $pid) {
                \array_map(static fn (self $computing) => $computing->give(), self::$mine);
            }
        };
        if (!self::$hasEnd) {
            self::$hasEnd = true;
            \register_shutdown_function($give);
        }
        if (\class_exists(Call::class)) {
            try {
                Call::current()->defer($give);
            } catch (NotAWorker) {
                // The process ends with what it does.
            }
        }
    }

    private static function newOwner(): string
    {
        $pid = (int) \getmypid();
        $since = self::since($pid);
        // Without its own beginning, a process can't tell of others whether they are there.
        $where = $since === null ? '' : self::here();

        return \implode(self::BETWEEN, [$where, $pid, $since ?? '', \bin2hex(\random_bytes(8))]);
    }

    /** False: it is there, or nobody can tell. */
    private static function isDead(string $owner): bool
    {
        [$where, $pid, $since] = \explode(self::BETWEEN, $owner) + ['', '', ''];
        if ($where === '' || $where !== self::here() || self::since((int) \getmypid()) === null) {
            return false;
        }

        return self::since((int) $pid) !== $since;
    }

    /** The processes that see each other's numbers. */
    private static function here(): string
    {
        $space = @\readlink('/proc/self/ns/pid');

        return \strtr(\php_uname('n') . ' ' . ($space === false ? '' : $space), self::BETWEEN, ' ');
    }

    /** When a process has begun, in ticks since the machine's start; null: it is not there. */
    private static function since(int $pid): ?string
    {
        $stat = @\file_get_contents("/proc/$pid/stat");
        if ($stat === false) {
            return null;
        }
        // Behind its name, which may have any bytes.
        $fields = \explode(' ', \substr($stat, (int) \strrpos($stat, ')') + 2));

        return ($fields[0] === 'Z' || $fields[0] === 'X') ? null : $fields[19] ?? null;
    }
}
