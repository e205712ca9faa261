<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation;

use Pronghorn\Call;
use Pronghorn\DeadlineExceeded;
use Pronghorn\Internal\Attempt;
use Pronghorn\WorkerSpoiled;

/**
 * Takes an application that is kept back after each call. A process in which that fails ends: the
 * next visitor must not find what this one has left.
 */
final class Renewal
{
    /** Each round may run destructors, which may leave things as the ones before did. */
    private const ROUNDS = 10;

    /** A call has begun, and what it leaves was not taken back yet. */
    private bool $isDue = false;

    /**
     * @param \Closure(): mixed $renew
     * @param ?\Closure(): mixed $look takes back what came behind that: destructors of the call's
     *     own values, functions of its output buffers, signals
     */
    public function __construct(private readonly \Closure $renew, private readonly ?\Closure $look = null)
    {
    }

    /**
     * Takes an application back until that changes nothing: what goes may have destructors, and
     * suspended fibers and generators run their `finally`, which set the same once more. One that
     * throws, or calls `exit`, cuts off the round that it is in, and another one follows.
     *
     * @param \Closure(): mixed $round false: it has changed nothing
     * @throws WorkerSpoiled when there is no end to it
     */
    public static function settle(\Closure $round): void
    {
        $told = [];
        $failed = $place = null;
        for ($times = 0; $times < self::ROUNDS; $times++) {
            Attempt::free($failed);
            $hasChanged = true;
            try {
                $place = Attempt::of(static function () use ($round, &$hasChanged): void {
                    $hasChanged = $round();
                });
            } catch (WorkerSpoiled | DeadlineExceeded $end) {
                throw $end;
            } catch (\Throwable $failed) {
                $told[(string) $failed] = $failed::class;
            }
            if ($hasChanged === false) {
                \array_map(Attempt::tell(...), \array_keys($told));

                return;
            }
        }
        throw new WorkerSpoiled(match (true) {
            $failed !== null => 'What is taken back throws each time.',
            $place !== null => "What is taken back calls exit() each time, in $place[0]:$place[1].",
            default => 'Destructors of a call change the application without an end.',
        }, 0, $failed);
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
        $this->look === null || self::expectTakenBack($this->look);
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
        $this->look === null || self::expectTakenBack($this->look);
    }

    private function renew(): void
    {
        self::expectTakenBack($this->renew);
        $this->isDue = false;
    }

    /** @param \Closure(): mixed $function */
    private static function expectTakenBack(\Closure $function): void
    {
        try {
            $function();
        } catch (\Throwable $failed) {
            throw new WorkerSpoiled("The application can't be taken back.", 0, $failed);
        }
    }

    private function expectRenewed(): void
    {
        if ($this->isDue) {
            throw new WorkerSpoiled("The application can't be taken back: something of it has called exit().");
        }
    }
}
