<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Queue;

use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Events\JobFailed;
use Illuminate\Queue\WorkerOptions;
use Pronghorn\Job;

/**
 * Runs jobs as `queue:work` does: with Laravel's events and middleware, tries and backoff of the
 * job, and a line in the table of failed jobs for one that is given up.
 */
final class JobRunner
{
    private readonly string $connection;
    private readonly WorkerOptions $options;

    public function __construct(private readonly Application $app)
    {
        $queues = $app->make('config')->get('queue.connections', []);
        $ours = \array_filter($queues, static fn (array $queue): bool => ($queue['driver'] ?? null) === 'pronghorn');
        $this->connection = (string) (\array_key_first($ours) ?? 'pronghorn');
        $settings = $ours[$this->connection] ?? [];
        $this->options = new WorkerOptions();
        $this->options->maxTries = $settings['tries'] ?? 1;
        $this->options->backoff = $settings['backoff'] ?? 0;
        $app->make('events')->listen(JobFailed::class, $this->log(...));
    }

    public function run(Job $asked): void
    {
        $job = new PronghornJob($this->app, $asked, $this->connection);
        try {
            $this->app->make('queue.worker')->process($this->connection, $job, $this->options);
        } catch (\Throwable $thrown) {
            // Laravel has decided by now what becomes of the job.
            if (!$job->isReleased() && !$job->hasFailed() && !$job->isDeleted()) {
                throw $thrown;
            }
            $this->app->make(ExceptionHandler::class)->report($thrown);
        }
    }

    private function log(JobFailed $failed): void
    {
        if ($failed->job instanceof PronghornJob && $this->app->bound('queue.failer')) {
            $job = $failed->job;
            $failer = $this->app->make('queue.failer');
            $failer->log($failed->connectionName, $job->getQueue(), $job->getRawBody(), $failed->exception);
        }
    }
}
