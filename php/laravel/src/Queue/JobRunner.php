<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Queue;

use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Events\JobExceptionOccurred;
use Illuminate\Queue\Events\JobFailed;
use Illuminate\Queue\Events\JobTimedOut;
use Illuminate\Queue\Events\Looping;
use Illuminate\Queue\Events\WorkerStopping;
use Illuminate\Queue\WorkerOptions;
use Pronghorn\Job;

/**
 * Runs jobs as `queue:work` does: with Laravel's events and middleware, tries and backoff of the
 * job, and a line in the table of failed jobs for one that is given up.
 */
final class JobRunner
{
    /** @var non-empty-array<string, array<string, mixed>> those with our driver, by name */
    private readonly array $connections;

    public function __construct(private readonly Application $app)
    {
        $all = $app->make('config')->get('queue.connections', []);
        $ours = \array_filter($all, static fn (array $queue): bool => ($queue['driver'] ?? null) === 'pronghorn');
        $this->connections = $ours === [] ? ['pronghorn' => []] : $ours;
        $events = $app->make('events');
        $events->listen(JobFailed::class, $this->log(...));
        $events->listen(JobExceptionOccurred::class, $this->timeOut(...));
    }

    public function run(Job $asked): void
    {
        $connection = $asked->header(PronghornQueue::CONNECTION) ?? '';
        if (!isset($this->connections[$connection])) {
            // Pushed by something else than Laravel, or under a name of before.
            $connection = (string) \array_key_first($this->connections);
        }
        $job = new PronghornJob($this->app, $asked, $connection);
        // Packages write down by it what they have gathered. It can't stop the job: it is here.
        $this->app->make('events')->dispatch(new Looping($connection, $job->getQueue()));
        $worker = $this->app->make('queue.worker');
        if ($this->app->bound('cache.store')) {
            // Exceptions of a job are counted there, for its `maxExceptions`.
            $worker->setCache($this->app->make('cache.store'));
        }
        try {
            self::limited(
                (int) $job->timeout(),
                $job->resolveName(),
                fn () => $worker->process($connection, $job, $this->options($connection)),
            );
        } catch (\Throwable $thrown) {
            // Laravel has decided by now what becomes of the job.
            if (!$job->isReleased() && !$job->hasFailed() && !$job->isDeleted()) {
                throw $thrown;
            }
            $this->app->make(ExceptionHandler::class)->report($thrown);
        }
    }

    /** This process runs no further job. */
    public function stopped(): void
    {
        $this->app->make('events')->dispatch(new WorkerStopping());
    }

    /**
     * Laravel hears of a time-out before the server does, and says what becomes of the job. Where
     * PHP has no alarms, the server alone ends an attempt that takes too long.
     *
     * @param int $seconds 0: without a limit
     * @param \Closure(): mixed $function
     */
    private static function limited(int $seconds, string $name, \Closure $function): void
    {
        if ($seconds <= 0 || !\function_exists('pcntl_alarm')) {
            $function();

            return;
        }
        $wasAsync = \pcntl_async_signals(true);
        $before = \pcntl_signal_get_handler(\SIGALRM);
        \pcntl_signal(\SIGALRM, static fn () => throw new TimeExceeded("$name has timed out."));
        \pcntl_alarm($seconds);
        try {
            $function();
        } finally {
            \pcntl_alarm(0);
            \pcntl_signal(\SIGALRM, $before);
            \pcntl_async_signals($wasAsync);
        }
    }

    private function options(string $connection): WorkerOptions
    {
        $settings = $this->connections[$connection];
        $options = new WorkerOptions();
        $options->maxTries = $settings['tries'] ?? Connector::TRIES;
        $options->backoff = $settings['backoff'] ?? 0;

        return $options;
    }

    private function log(JobFailed $failed): void
    {
        if ($failed->job instanceof PronghornJob && $this->app->bound('queue.failer')) {
            $job = $failed->job;
            $failer = $this->app->make('queue.failer');
            $failer->log($failed->connectionName, $job->getQueue(), $job->getRawBody(), $failed->exception);
        }
    }

    /** Laravel ends its own process at a time-out, and does this before. */
    private function timeOut(JobExceptionOccurred $thrown): void
    {
        $job = $thrown->job;
        if (!$job instanceof PronghornJob || !$thrown->exception instanceof TimeExceeded) {
            return;
        }
        if ($job->shouldFailOnTimeout() && !$job->hasFailed()) {
            $job->fail($thrown->exception);
        }
        if (\class_exists(JobTimedOut::class)) {
            $this->app->make('events')->dispatch(new JobTimedOut($thrown->connectionName, $job));
        }
    }
}
