<?php

declare(strict_types=1);

namespace Pronghorn\Jobs\Internal;

use Pronghorn\Jobs\JobFailed;
use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\NotDone;
use Pronghorn\Jobs\Queue;
use Pronghorn\Rpc;
use Pronghorn\RpcError;

/** Over the server's RPC. */
final class RpcQueue extends Queue
{
    /** Seconds that one question for a result may take, well below what a connection waits for. */
    private const SLICE = 20.0;
    /** Seconds after which it is looked again how far a job has come. */
    private const LOOK_AGAIN = 0.5;
    /** Seconds: a year, for what is meant as for ever. */
    private const LONGEST = 31_536_000.0;

    private readonly Rpc $rpc;

    public function __construct(?string $address, private readonly string $pipeline, private readonly float $timeout)
    {
        $this->rpc = Rpc::connect($address, $timeout);
    }

    public function batch(NewJob ...$jobs): array
    {
        $messages = [];
        foreach ($jobs as $job) {
            $messages[] = Message::of($job, $this->pipeline);
        }
        $answer = match (\count($messages)) {
            0 => [],
            1 => $this->call('jobs.Push', ['job' => $messages[0]]),
            default => $this->call('jobs.PushBatch', ['jobs' => $messages]),
        };
        $ids = \array_column($messages, 'id');

        // What is there already keeps its ID.
        return \array_map(static fn (string $id): string => $answer['duplicates'][$id] ?? $id, $ids);
    }

    public function then(NewJob $last, NewJob ...$jobs): string
    {
        if ($jobs === []) {
            throw new \ValueError('There is no job to wait for.');
        }
        $messages = [];
        foreach ($jobs as $job) {
            $messages[] = Message::of($job, $this->pipeline);
        }
        $then = Message::of($last, $this->pipeline);
        $this->call('jobs.Batch', ['jobs' => $messages, 'then' => $then]);

        return $then['id'];
    }

    public function await(string $id, float $timeout = 30.0, ?callable $progress = null): mixed
    {
        if (!($timeout > 0)) {
            throw new \ValueError('A time-out is above 0.');
        }
        $until = \hrtime(true) + (int) (\min($timeout, self::LONGEST) * 1e9);
        $told = null;
        do {
            $left = ($until - \hrtime(true)) / 1e9;
            $longest = $progress === null ? self::SLICE : self::LOOK_AGAIN;
            $slice = \max(0.0, \min($left, $longest, $this->timeout / 2));
            $answer = $this->call('jobs.Await', ['id' => $id, 'timeout_ms' => (int) \ceil($slice * 1000)]);
            $told = self::tell($progress, $answer, $told);
        } while ($answer['state'] === 'waiting' && $left > $slice);

        return match ($answer['state']) {
            'done' => \json_decode($answer['result'] ?? 'null', true, flags: \JSON_THROW_ON_ERROR),
            'failed' => throw new JobFailed($answer['error'] ?? 'The job failed.'),
            default => throw new NotDone(
                "Job $id was not done in time, is not known, or was pushed without the option `result`."
            ),
        };
    }

    /**
     * @param array<string, mixed> $argument
     * @throws RpcError without the words before its text by which RoadRunner's clients know errors
     */
    private function call(string $method, array $argument): mixed
    {
        try {
            return $this->rpc->call($method, $argument);
        } catch (RpcError $error) {
            $text = \preg_replace('/\A(?:\s*(?:rpc|jobs_plugin)_[a-z_]+:\s)+\s*/', '', $error->getMessage());
            throw new RpcError($text ?? $error->getMessage(), $error->getCode(), $error);
        }
    }

    /**
     * Says how far a job has come, if that is something new.
     *
     * @param ?callable(float, string): mixed $progress
     * @param array<string, mixed> $answer of the server
     * @param ?array{float, string} $told what was said before
     * @return ?array{float, string} what has been said
     */
    private static function tell(?callable $progress, array $answer, ?array $told): ?array
    {
        $now = [(float) ($answer['progress'] ?? 0), $answer['progress_text'] ?? ''];
        if ($progress === null || !isset($answer['progress']) || $now === $told) {
            return $told;
        }
        $progress(...$now);

        return $now;
    }
}
