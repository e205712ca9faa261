<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation;

use Pronghorn\Call;
use Pronghorn\WorkerSpoiled;

/**
 * Takes an application that is kept back after each call. A process in which that fails ends: the
 * next visitor must not find what this one has left.
 */
final class Renewal
{
    /** A call has begun, and what it leaves was not taken back yet. */
    private bool $isDue = false;

    /** @param \Closure(): mixed $renew */
    public function __construct(private readonly \Closure $renew)
    {
    }

    /**
     * A call has begun.
     *
     * @param ?\Closure(): mixed $last is called behind its reply, before the application is renewed
     */
    public function begin(?\Closure $last = null): void
    {
        if ($this->isDue) {
            throw new WorkerSpoiled('The last call was cut off before its application was taken back.');
        }
        $this->isDue = true;
        $call = Call::current();
        $call->defer(function () use ($call, $last): void {
            // Now, so that they come behind what the call has deferred; and each by itself, because
            // an `exit` ends the one that it is in.
            $call->defer($this->renew(...));
            $call->defer($this->expectRenewed(...));
            $last === null || $last();
        });
    }

    /** Before a fork: what pages of `warmup` have left. */
    public function finish(): void
    {
        $this->isDue && $this->renew();
    }

    private function renew(): void
    {
        try {
            ($this->renew)();
        } catch (\Throwable $failed) {
            throw new WorkerSpoiled("The application can't be taken back.", 0, $failed);
        }
        $this->isDue = false;
    }

    private function expectRenewed(): void
    {
        if ($this->isDue) {
            throw new WorkerSpoiled("The application can't be taken back: something of it has called exit().");
        }
    }
}
