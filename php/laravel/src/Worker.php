<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Http\UploadedFile;
use Pronghorn\HttpFoundation\Foundation;
use Pronghorn\Job;
use Pronghorn\Laravel\Queue\JobRunner;
use Pronghorn\Request as Asked;
use Pronghorn\Response as Reply;
use Pronghorn\Worker as Served;

/** Answers requests and runs jobs with an application that is booted once. */
final class Worker
{
    private readonly Kernel $kernel;
    private readonly Sandbox $sandbox;
    private readonly JobRunner $jobs;

    public function __construct(private readonly Application $app)
    {
        $this->kernel = $app->make(Kernel::class);
        // Services that are made at the boot may want one.
        $app->instance('request', Request::create('http://localhost'));
        $this->kernel->bootstrap();
        $app->instance('request', Request::create($app->make('config')->get('app.url') ?: 'http://localhost'));
        $settings = $app->make('config')->get('pronghorn') ?? [];
        $settings += require __DIR__ . '/../config/pronghorn.php';
        foreach ($settings['warm'] as $name) {
            if ($app->bound($name)) {
                $app->make($name);
            }
        }
        $this->jobs = new JobRunner($app);
        $this->sandbox = new Sandbox($app, $settings['reset'], $settings['keep_connections']);
    }

    /** Answers requests and runs jobs until the server stops this worker. */
    public function run(): void
    {
        (new Served())->onRequest($this->answer(...))->onJob($this->work(...))->run();
    }

    private function work(Job $job): void
    {
        try {
            $this->jobs->run($job);
        } finally {
            $this->sandbox->restore();
        }
    }

    private function answer(Asked $asked): Reply
    {
        $request = Request::createFromBase(Foundation::request($asked, UploadedFile::class));
        [$kernel, $sandbox] = [$this->kernel, $this->sandbox];

        return Foundation::answer($request, $kernel->handle(...), $kernel->terminate(...), $sandbox->restore(...));
    }
}
