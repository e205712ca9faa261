<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Contracts\Foundation\CachesConfiguration;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Http\HtmlDumper;
use Illuminate\Http\Request;
use Illuminate\Http\UploadedFile;
use Pronghorn\HttpFoundation\Dumps;
use Pronghorn\HttpFoundation\Foundation;
use Pronghorn\HttpFoundation\Renewal;
use Pronghorn\Job;
use Pronghorn\Laravel\Queue\JobRunner;
use Pronghorn\Request as Asked;
use Pronghorn\Response as Reply;
use Pronghorn\Worker as Served;
use Symfony\Component\HttpFoundation\Response;

/** Answers requests and runs jobs with an application that is booted once. */
final class Worker
{
    private readonly Kernel $kernel;
    private Sandbox $sandbox;
    private readonly JobRunner $jobs;
    private readonly ?OctaneEvents $octane;
    private readonly Renewal $renewal;
    /** It has run a job. */
    private bool $hasWorked = false;

    public function __construct(private readonly Application $app)
    {
        $this->kernel = $app->make(Kernel::class);
        // Providers may open connections when they boot.
        $app->booting(static fn () => Connections::ownSessions($app));
        // Services that are made at the boot may want one.
        $app->instance('request', Request::create('http://localhost'));
        $this->boot();
        $app->instance('request', Request::create($app->make('config')->get('app.url') ?: 'http://localhost'));
        self::expectOwnConfiguration($app);
        $settings = $app->make('config')->get('pronghorn') ?? [];
        $settings += require __DIR__ . '/../config/pronghorn.php';
        foreach ($settings['warm'] as $name) {
            if ($app->bound($name)) {
                $app->make($name);
            }
        }
        $this->jobs = new JobRunner($app);
        $this->octane = OctaneEvents::of($app);
        Dumps::listen(\class_exists(HtmlDumper::class)
            ? static fn () => HtmlDumper::register($app->basePath(), $app->make('config')->get('view.compiled'))
            : null);
        // What its listeners do now is part of the boot.
        $this->octane?->started();
        $this->sandbox = new Sandbox(
            $app,
            $settings['reset'],
            $settings['keep_connections'],
            $settings['keep_statics'],
        );
        $restore = fn () => $this->sandbox->restore();
        $this->renewal = new Renewal($restore, $restore);
    }

    /**
     * Laravel has `dd()` and `dump()` write for a terminal, unless the format is `html`. Its dumper
     * for pages draws a random number when it is made, after which workers are not forked. So the
     * boot makes none, as with `server`, and the first dump of a request does.
     */
    private function boot(): void
    {
        $format = $_SERVER['VAR_DUMPER_FORMAT'] ?? 'html';
        $isLater = $format === 'html' && \class_exists(HtmlDumper::class);
        $_SERVER['VAR_DUMPER_FORMAT'] = $isLater ? 'server' : $format;
        $this->kernel->bootstrap();
        $_SERVER['VAR_DUMPER_FORMAT'] = $format;
    }

    /** `config:cache` writes paths down, and a copy of the folder has them, too. */
    private static function expectOwnConfiguration(Application $app): void
    {
        $views = \array_values($app->make('config')->get('view.paths', []));
        $isCached = $app instanceof CachesConfiguration && $app->configurationIsCached();
        if (!$isCached || $views === []) {
            return;
        }
        $why = match (true) {
            \array_filter($views, 'is_dir') === [] => "there is no $views[0]",
            self::isAnotherFolder($app, \dirname($views[0], 2)) => "its views would be those of $views[0]",
            default => null,
        };
        if ($why !== null) {
            throw new \LogicException(
                "The configuration was cached in another folder: $why."
                    . ' hint: `php artisan config:cache` here, or `php artisan config:clear`'
            );
        }
    }

    /** Whether an application lies there, which is not this one, and compiled views are its own, too. */
    private static function isAnotherFolder(Application $app, string $folder): bool
    {
        $compiled = (string) $app->make('config')->get('view.compiled');

        return \is_file("$folder/artisan")
            && \realpath($folder) !== \realpath($app->basePath())
            && \str_starts_with($compiled, "$folder/");
    }

    /** Answers requests and runs jobs until the server stops this worker. */
    public function run(): void
    {
        (new Served())
            ->onRequest($this->answer(...))
            ->onJob($this->work(...))
            ->beforeFork($this->beforeFork(...))
            ->onStop($this->stopped(...))
            ->run();
    }

    /** Closes connections that the boot, or a page of `warmup`, has opened. */
    private function beforeFork(): void
    {
        $this->renewal->finish();
        $this->sandbox->disconnect();
        if ($this->app->resolved('redis')) {
            $redis = $this->app->make('redis');
            \array_map($redis->purge(...), \array_keys($redis->connections() ?? []));
        }
        $this->app->make('events')->dispatch(new BeforeFork());
        // The boot has none of them any more.
        $this->sandbox = $this->sandbox->again();
    }

    private function stopped(): void
    {
        $this->octane?->stopped();
        $this->hasWorked && $this->jobs->stopped();
    }

    private function work(Job $job): void
    {
        $this->renewal->begin();
        $this->hasWorked = true;
        $this->jobs->run($job);
    }

    private function answer(Asked $asked): Reply
    {
        $request = Request::createFromBase(Foundation::request($asked, UploadedFile::class));

        return Foundation::answer($request, $this->handle(...), $this->terminate(...), $this->renewal);
    }

    private function handle(Request $request): Response
    {
        $this->octane?->received($request);
        $response = $this->kernel->handle($request);
        $this->octane?->handled($request, $response);

        return $response;
    }

    private function terminate(Request $request, Response $response): void
    {
        $this->kernel->terminate($request, $response);
        $this->octane?->terminated($request, $response);
    }
}
