<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Pronghorn\Cache\Internal\Keys;
use Pronghorn\Cache\Internal\LockEntry;

/**
 * A lock that all workers share, by an entry of a storage. It ends by itself, so that the death of
 * its owner holds nobody up for long.
 *
 * Each acquisition has a fencing token, which is larger than that of any before, also after the
 * storage was cleared: whoever writes somewhere else takes it along, and what has seen a larger one
 * refuses it. It is a number of microseconds since 1970, or more.
 */
final class Lock
{
    /** Seconds between two tries. */
    private const LOOK = 0.002;

    private readonly LockEntry $entry;
    /** Who has it, while it is held by this one. */
    private ?string $held = null;
    private int $token = 0;

    /** @param float $ttl seconds after which it ends if it is not renewed, above 0 */
    public function __construct(
        private readonly Store $store,
        private readonly string $name,
        private readonly float $ttl = 30.0,
    ) {
        if (!($ttl > 0)) {
            throw new \ValueError('A lock is held for more than 0 seconds.');
        }
        $this->entry = new LockEntry($store, $name);
    }

    /**
     * Takes the lock; false: another one has it, and had it all the time.
     *
     * @param float $wait seconds
     */
    public function acquire(float $wait = 0.0): bool
    {
        // Not by the calendar's clock, which may be set meanwhile.
        $since = \hrtime(true);
        while (!$this->try()) {
            if (\hrtime(true) - $since >= $wait * 1e9) {
                return false;
            }
            \usleep((int) (self::LOOK * 1e6)); // phpcs:ignore Generic.PHP.ForbiddenFunctions -- it waits
        }

        return true;
    }

    /** Begins its time anew; false: it has ended, and another one may have it. */
    public function renew(): bool
    {
        return $this->held !== null && $this->entry->renew($this->held, $this->ttl);
    }

    /** Gives it back; false: it had ended before. */
    public function release(): bool
    {
        $held = $this->held;
        $this->held = null;

        return $held !== null && $this->entry->give($held);
    }

    public function isHeld(): bool
    {
        return $this->held !== null && $this->entry->owner() === $this->held;
    }

    /** That of the last acquisition. */
    public function token(): int
    {
        return $this->token;
    }

    private function try(): bool
    {
        $mine = \bin2hex(\random_bytes(16));
        if (!$this->entry->take($mine, $this->ttl)) {
            return false;
        }
        $token = $this->nextToken();
        // The token counts with the entry that names it: whoever was stopped until another one had
        // the lock has none.
        if (!$this->entry->hand($mine, "$mine $token", $this->ttl)) {
            $this->entry->give($mine); // where it had no room, it is nobody's

            return false;
        }
        $this->held = "$mine $token";
        $this->token = $token;

        return true;
    }

    /**
     * By the clock, so that tokens grow although the storage was cleared or the server restarted;
     * by the last one, so that they grow although the clock was set back. The owner alone asks.
     */
    private function nextToken(): int
    {
        $key = "lock-token\0" . Keys::shortened($this->name);
        $last = (int) $this->store->get($key, 0);
        $token = \max((int) (\microtime(true) * 1e6), $last + 1);
        $this->store->set($key, $token); // without room it is not kept, and the clock goes on

        return $token;
    }
}
