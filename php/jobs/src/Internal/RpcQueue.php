<?php

declare(strict_types=1);

namespace Pronghorn\Jobs\Internal;

use Pronghorn\Jobs\JobFailed;
use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\NotDone;
use Pronghorn\Jobs\Queue;
use Pronghorn\Jobs\Size;
use Pronghorn\Rpc;
use Pronghorn\RpcError;

/** Over the server's RPC. */
final class RpcQueue extends Queue
{
    /** Seconds that one question for a result may take, well below what a connection waits for. */
    private const SLICE = 20.0;
    /** Seconds after which it is asked whether there is such a job at all. */
    private const FIRST_LOOK = 1.0;
    /** Seconds after which it is looked again how far a job has come. */
    private const LOOK_AGAIN = 0.5;
    /** Seconds: a year, for what is meant as for ever. */
    private const LONGEST = 31_536_000.0;
    /** Where a job is that is not done, by the server's words. */
    private const STANDINGS = [
        'running' => 'was not done in time: a worker has it.',
        'waiting' => 'was not done in time: it waits in the pipeline `%s` for a worker.',
        'delayed' => 'was not done in time: it waits in the pipeline `%s` for its time.',
        'batch' => 'was not done in time: not all jobs that it follows have come to their end.',
        'no_result' => 'was pushed without the option `result`: what comes of it is not kept.',
        'dead' => 'was given up and is a dead letter; why is not kept any more for those who wait.',
        'broker' => 'was not done in time: the server does not know it, and a broker, which may have it, does not '
            . 'tell. Results are not kept over a restart of the server.',
        'unknown' => 'is not there: it never was, it is done and was pushed without the option `result`, its result '
            . 'is not kept any more, or it was in memory when the server ended.',
        '' => 'was not done in time, or the server does not know it.',
    ];

    /** Jobs whose pipelines are remembered. */
    private const MOST_REMEMBERED = 1000;

    private readonly Rpc $rpc;
    /** @var array<string, string> the pipelines of jobs that were pushed here, by ID; the newest last */
    private array $pipelines = [];

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
        $ids = [];
        foreach ($messages as $message) {
            // What is there already keeps its ID.
            $ids[] = $id = $answer['duplicates'][$message['id']] ?? $message['id'];
            $this->remember($id, $message['options']['pipeline']);
        }

        return $ids;
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
        $this->remember($then['id'], $then['options']['pipeline']);

        return $then['id'];
    }

    public function await(string $id, float $timeout = 30.0, ?callable $progress = null): mixed
    {
        if (!($timeout > 0)) {
            throw new \ValueError('A time-out is above 0.');
        }
        $answer = $this->waitFor($id, \min($timeout, self::LONGEST), $progress);

        return match ($answer['state']) {
            'done' => \json_decode($answer['result'] ?? 'null', true, flags: \JSON_THROW_ON_ERROR),
            'failed' => throw new JobFailed($answer['error'] ?? 'The job failed.', $answer['trace'] ?? null),
            'stopping' => throw new NotDone("Job $id was not done when the server stopped."),
            default => throw new NotDone(self::standing($id, $answer)),
        };
    }

    public function size(?string $pipeline = null): Size
    {
        $pipeline ??= $this->pipeline;
        foreach ($this->call('jobs.Overview', [])['pipelines'] ?? [] as $row) {
            if ($row['pipeline'] !== $pipeline) {
                continue;
            }
            if (isset($row['error'])) {
                throw new RpcError("The jobs of the pipeline `$pipeline` can't be counted: {$row['error']}");
            }

            return new Size($row['ready'], $row['delayed'], $row['reserved'], $row['oldest'] ?? null);
        }
        throw new RpcError("There is no pipeline `$pipeline`: the server has those of its section `jobs.pipelines`.");
    }

    public function clear(?string $pipeline = null): int
    {
        return $this->call('jobs.Clear', ['pipeline' => $pipeline ?? $this->pipeline])['removed'] ?? 0;
    }

    /**
     * @param ?callable(float, string): mixed $progress
     * @return array<string, mixed> the server's last answer
     */
    private function waitFor(string $id, float $timeout, ?callable $progress): array
    {
        $until = \hrtime(true) + (int) ($timeout * 1e9);
        $told = null;
        // To find the job costs the server something: that is asked for at first, and at last.
        $isFirst = true;
        do {
            $left = ($until - \hrtime(true)) / 1e9;
            $longest = $isFirst ? self::FIRST_LOOK : self::SLICE;
            $slice = \max(0.0, \min($left, $progress === null ? $longest : self::LOOK_AGAIN, $this->timeout / 2));
            $answer = $this->call('jobs.Await', [
                'id' => $id,
                'pipeline' => $this->pipelines[$id] ?? '',
                'timeout_ms' => (int) \ceil($slice * 1000),
                'explain' => $isFirst || $left <= $slice,
            ]);
            $told = self::tell($progress, $answer, $told);
            $isFirst = false;
        } while ($answer['state'] === 'waiting' && $left > $slice && !self::isHopeless($answer));

        return $answer;
    }

    /** So that a job of the same ID in another pipeline does not answer for this one. */
    private function remember(string $id, string $pipeline): void
    {
        unset($this->pipelines[$id]);
        $this->pipelines[$id] = $pipeline;
        if (\count($this->pipelines) > self::MOST_REMEMBERED) {
            unset($this->pipelines[\array_key_first($this->pipelines)]);
        }
    }

    /** @param array<string, mixed> $answer of the server, about a job that is not done */
    private static function isHopeless(array $answer): bool
    {
        return \in_array($answer['standing'] ?? null, ['no_result', 'dead', 'unknown'], true);
    }

    /** @param array<string, mixed> $answer of the server, about a job that is not done */
    private static function standing(string $id, array $answer): string
    {
        $why = self::STANDINGS[$answer['standing'] ?? ''] ?? self::STANDINGS[''];

        return "Job $id " . \sprintf($why, $answer['pipeline'] ?? '');
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
