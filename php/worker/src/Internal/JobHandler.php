<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Job;

/** Gets a job; what it returns is for whoever waits for it. */
final class JobHandler extends Handler
{
    /** A float stays one. */
    private const JSON = \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_PRESERVE_ZERO_FRACTION;
    private const SHAPE = 'Accepted is fn (Pronghorn\Job $job): mixed.';

    /** @throws BadWorker when nobody could call it */
    public static function of(callable $handler): self
    {
        $function = \Closure::fromCallable($handler);
        $reflection = new \ReflectionFunction($function);
        $type = ($reflection->getParameters()[0] ?? null)?->getType();
        $taken = [Job::class, '?' . Job::class, 'mixed', 'object'];
        $takesJob = $type === null || \in_array((string) $type, $taken, true);
        if (!$takesJob || $reflection->getNumberOfRequiredParameters() > 1) {
            throw new BadWorker(self::name($reflection) . ' does not take one job. ' . self::SHAPE);
        }

        if ($reflection->isGenerator()) {
            throw new BadWorker(self::name($reflection) . ' has a `yield`, so nothing of it would run. ' . self::SHAPE);
        }

        return new self($function, (string) $reflection->getFileName(), (int) $reflection->getStartLine());
    }

    /** @param JobExchange $exchange */
    public function answer(Exchange $exchange): void
    {
        try {
            $result = ($this->function)($exchange->job);
        } catch (\Throwable $thrown) {
            if (!$exchange->job->isDecided()) {
                throw $thrown;
            }
            // The handler has said before what is to become of the job.
            $result = null;
        }
        $this->send($exchange, $result);
    }

    /** @param JobExchange $exchange */
    public function send(Exchange $exchange, mixed $result): void
    {
        [$outcome, $delay, $body] = $exchange->job->outcome();
        if ($outcome === Native::JOB_DONE && $result instanceof \Generator) {
            throw new BadCall('The handler returned a generator, which nobody runs: go through it in the handler.');
        }
        if ($outcome === Native::JOB_DONE && $exchange->wantsResult) {
            try {
                $body = \json_encode($result, self::JSON);
            } catch (\JsonException $problem) {
                // It has run: another attempt would do its work twice, and give the same.
                $outcome = Native::JOB_DONE_WITHOUT;
                $body = "what its handler returned can't be written as JSON: {$problem->getMessage()}";
            }
        }
        $flags = $exchange->deferred === [] ? 0 : Native::BUSY;
        $exchange->transport->replyJob($exchange->id, $outcome, $delay, $body, $flags);
        $exchange->state = Exchange::DONE;
    }

    public function function(): \Closure
    {
        return $this->function;
    }
}
