<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

use Pronghorn\Jobs\Internal\Message;

/** A queue for tests, without a server: it keeps what is pushed. */
final class FakeQueue extends Queue
{
    /** @var array<string, NewJob> by ID */
    private array $jobs = [];
    /** @var array<string, \Closure(NewJob): mixed> */
    private array $handlers = [];

    /** @internal {@see Queue::fake()} makes one */
    public function __construct(private readonly string $pipeline)
    {
    }

    public function batch(NewJob ...$jobs): array
    {
        $ids = [];
        foreach ($jobs as $job) {
            // What a server would refuse fails here as well.
            $message = Message::of($job, $this->pipeline);
            $options = $job->options->with(id: $message['id'], pipeline: $message['options']['pipeline']);
            $this->jobs[$message['id']] = new NewJob($job->name, $job->payload, $options);
            $ids[] = $message['id'];
        }

        return $ids;
    }

    public function then(NewJob $last, NewJob ...$jobs): string
    {
        if ($jobs === []) {
            throw new \ValueError('There is no job to wait for.');
        }
        $this->batch(...$jobs);

        return $this->batch($last)[0];
    }

    /**
     * What handle() said for jobs of this name. It waits for nobody.
     *
     * @throws \ValueError when the time-out makes no sense
     */
    public function await(string $id, float $timeout = 30.0, ?callable $progress = null): mixed
    {
        unset($progress); // no handler runs, so nothing is told
        if (!($timeout > 0)) {
            throw new \ValueError('A time-out is above 0.');
        }
        $job = $this->jobs[$id] ?? throw new NotDone("No job $id was pushed.");
        $handler = $this->handlers[$job->name] ?? throw new NotDone("No handler was given for jobs `$job->name`.");

        return \json_decode(\json_encode($handler($job), Message::JSON), true, flags: \JSON_THROW_ON_ERROR);
    }

    /** All that was pushed and not removed: no handler runs. */
    public function size(?string $pipeline = null): Size
    {
        $jobs = $this->in($pipeline ?? $this->pipeline);
        $delayed = \count(\array_filter($jobs, static fn (NewJob $job): bool => $job->options->delay > 0));

        return new Size(\count($jobs) - $delayed, $delayed, 0);
    }

    public function clear(?string $pipeline = null): int
    {
        $jobs = $this->in($pipeline ?? $this->pipeline);
        $this->jobs = \array_diff_key($this->jobs, $jobs);

        return \count($jobs);
    }

    /** @return array<string, NewJob> */
    private function in(string $pipeline): array
    {
        return \array_filter($this->jobs, static fn (NewJob $job): bool => $job->options->pipeline === $pipeline);
    }

    /**
     * Says what await() gives for jobs of a name.
     *
     * @param callable(NewJob): mixed $handler may throw {@see JobFailed}
     */
    public function handle(string $name, callable $handler): static
    {
        $this->handlers[$name] = \Closure::fromCallable($handler);

        return $this;
    }

    /**
     * What was pushed so far, with the options that it got.
     *
     * @param ?string $name only jobs of this name
     * @return list<NewJob>
     */
    public function pushed(?string $name = null): array
    {
        $has = static fn (NewJob $job): bool => $name === null || $job->name === $name;

        return \array_values(\array_filter($this->jobs, $has));
    }
}
