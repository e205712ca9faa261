<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadCall;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\Failure;
use Pronghorn\Internal\JobExchange;
use Pronghorn\Internal\Native;

/**
 * A job under way. Its handler returns when the job is done, or throws when it failed; {@see
 * fail()} and {@see retryIn()} say more. They don't end the handler: it returns after them.
 */
final class Job
{
    /** A longer reason is cut off. */
    private const MAX_REASON = 16 * 1024;
    /** Ten years; the server takes no longer delays. */
    private const MAX_DELAY = 10 * 365.2 * 86_400;

    private static ?Rpc $server = null;

    private int $outcome = Native::JOB_DONE;
    private int $delay = 0;
    private string $reason = '';

    /**
     * For tests of a handler; the server makes those that run.
     *
     * @param string $name which handler it is for
     * @param string $body the payload as it travelled
     * @param array<array-key, non-empty-list<string>> $headers
     * @param string $id chosen by whoever pushed it
     * @param int $attempt 1 for the first one; those that a deploy or a restart cut off don't count
     */
    public function __construct(
        public readonly string $name,
        public readonly string $body = '',
        public readonly array $headers = [],
        public readonly string $id = '',
        public readonly string $pipeline = '',
        public readonly string $driver = '',
        public readonly int $attempt = 1,
    ) {
    }

    /**
     * What was pushed: decoded if it was sent as JSON, as {@see Queue} does with all but strings,
     * else the body.
     *
     * @throws \JsonException when it is no JSON, although its header says so
     */
    public function payload(): mixed
    {
        return $this->header('content-type') === 'application/json'
            ? \json_decode($this->body, true, flags: \JSON_THROW_ON_ERROR)
            : $this->body;
    }

    /** The first value of a header, null when there is none. */
    public function header(string $name): ?string
    {
        return $this->headers[$name][0] ?? null;
    }

    /** Seconds until the server gives this job up, 0 when it has; null when there is no limit. */
    public function timeLeft(): ?float
    {
        $exchange = Exchange::$current;

        return $exchange instanceof JobExchange && $exchange->job === $this ? $exchange->call()->timeLeft() : null;
    }

    /**
     * Says how far the job has come, for those who wait for it. Outside of a worker it does
     * nothing.
     *
     * @param float $done 0 to 1
     * @param string $text what it is at; bytes that are no UTF-8 are replaced
     * @throws Exception when the share makes no sense, or the server is gone
     */
    public function progress(float $done, string $text = ''): void
    {
        if (!($done >= 0 && $done <= 1)) {
            $given = \is_nan($done) ? 'NAN' : $done; // PHP 8.5 warns where NAN becomes a string
            throw new BadCall("A job's progress is from 0 to 1, this is $given.");
        }
        if (Exchange::$current instanceof JobExchange && Exchange::$current->job === $this) {
            self::$server ??= Rpc::connect();
            self::$server->call(
                'jobs.Progress',
                ['id' => $this->id, 'done' => $done, 'text' => Failure::readable($text)],
            );
        }
    }

    /**
     * Gives the job up: no other attempt would help. It becomes a dead letter.
     *
     * @throws \LogicException when this or {@see retryIn()} was called before; what that has said
     *     counts
     */
    public function fail(string|\Throwable $reason = ''): void
    {
        $this->decide(Native::JOB_FAILED, 0, $reason);
    }

    /**
     * Runs the job again after this time, and not when the pipeline's `retry` says. It counts as an
     * attempt: after the last one the job becomes a dead letter.
     *
     * @param float $seconds from now, 0 or more
     * @throws Exception when the time makes no sense
     * @throws \LogicException when this or {@see fail()} was called before; what that has said
     *     counts
     */
    public function retryIn(float $seconds, string|\Throwable $reason = ''): void
    {
        if (!($seconds >= 0 && $seconds <= self::MAX_DELAY)) {
            $given = \is_nan($seconds) ? 'NAN' : $seconds; // PHP 8.5 warns where NAN becomes a string
            throw new BadCall("A job cannot be run again in $given seconds.");
        }
        $this->decide(Native::JOB_RETRY, (int) ($seconds * 1000), $reason);
    }

    /**
     * Whether {@see fail()} or {@see retryIn()} were called.
     *
     * @internal
     */
    public function isDecided(): bool
    {
        return $this->outcome !== Native::JOB_DONE;
    }

    /**
     * @internal
     * @return array{int, int, string} one of the numbers `JOB_…`, milliseconds, the reason
     */
    public function outcome(): array
    {
        return [$this->outcome, $this->delay, $this->reason];
    }

    private function decide(int $outcome, int $delay, string|\Throwable $reason): void
    {
        if ($this->isDecided()) {
            $before = $this->outcome === Native::JOB_FAILED ? 'fail()' : 'retryIn()';
            $message = "$before was called for this job before, and counts: write `return` after it.";
            throw new \LogicException($message);
        }
        if ($reason instanceof \Throwable) {
            $reason = $reason::class . ": {$reason->getMessage()} in {$reason->getFile()}:{$reason->getLine()}";
        }
        $this->outcome = $outcome;
        $this->delay = $delay;
        $this->reason = \strlen($reason) > self::MAX_REASON
            ? \substr($reason, 0, self::MAX_REASON) . ' … cut off'
            : $reason;
    }
}
