<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Auth\AuthServiceProvider;
use Illuminate\Auth\GenericUser;
use Illuminate\Cache\CacheServiceProvider;
use Illuminate\Config\Repository;
use Illuminate\Contracts\Auth\Access\Gate;
use Illuminate\Database\Connection;
use Illuminate\Database\DatabaseServiceProvider;
use Illuminate\Filesystem\FilesystemServiceProvider;
use Illuminate\Foundation\Application;
use Illuminate\Hashing\HashServiceProvider;
use Illuminate\Http\Client\Factory as HttpClient;
use Illuminate\Http\Request;
use Illuminate\Mail\MailServiceProvider;
use Illuminate\Notifications\ChannelManager;
use Illuminate\Notifications\NotificationServiceProvider;
use Illuminate\Queue\QueueServiceProvider;
use Illuminate\Routing\Route;
use Illuminate\Support\Facades\Config;
use Illuminate\Support\Facades\Facade;
use Illuminate\Translation\TranslationServiceProvider;
use Illuminate\Validation\ValidationServiceProvider;
use Illuminate\View\FileViewFinder;
use Illuminate\View\ViewServiceProvider;
use Laravel\SerializableClosure\SerializableClosure;
use Monolog\Handler\NullHandler;
use Monolog\Logger;
use PHPUnit\Framework\TestCase;
use Pronghorn\Laravel\Held;
use Pronghorn\Laravel\Connections;
use Pronghorn\Laravel\Sandbox;
use Pronghorn\WorkerSpoiled;

final class SandboxTest extends TestCase
{
    private Application $app;

    protected function setUp(): void
    {
        $this->app = new Application('/nowhere');
        $this->app->instance('config', new Repository(['app' => ['locale' => 'en']]));
        Facade::setFacadeApplication($this->app);
    }

    protected function tearDown(): void
    {
        Facade::setFacadeApplication(null);
        Facade::clearResolvedInstances();
    }

    public function testWhatARequestLeftIsGone(): void
    {
        $this->app->singleton('lazy', fn (): \ArrayObject => new \ArrayObject());
        $sandbox = new Sandbox($this->app);

        Config::set('app.locale', 'fr');
        $this->app->make('lazy')['user'] = 'ada';
        $this->app->bind('more', fn (): string => 'of a request');
        $this->app->instance('user', 'ada');
        $sandbox->restore();

        self::assertSame('en', Config::get('app.locale'));
        self::assertCount(0, $this->app->make('lazy'));
        self::assertFalse($this->app->bound('more'));
        self::assertFalse($this->app->bound('user'));
    }

    public function testClosuresAreReadInEachRequest(): void
    {
        // Laravel 8 knows nothing of PHP 8.2.
        $reporting = \error_reporting(\E_ALL & ~\E_DEPRECATED);
        $sandbox = new Sandbox($this->app);
        for ($request = 1; $request <= 3; $request++) {
            $kept = \serialize(new SerializableClosure(static fn (): int => $request));
            self::assertSame($request, \unserialize($kept)->getClosure()());
            $sandbox->restore();
        }
        \error_reporting($reporting);
    }

    /** As `once()` keeps values, when the boot has called it. */
    public function testMapsThatServicesHoldGoBack(): void
    {
        $service = new \stdClass();
        $values = new \WeakMap();
        $values[$service] = ['of the boot' => 1];
        $inner = new Repository(['locale' => 'en']);
        $list = new \ArrayObject([$inner]);
        $time = new \DateTime('2020-01-01');
        $plain = (object) ['times' => [$time]];
        $this->app->instance('holder', new Repository(['values' => $values, 'plain' => $plain]));
        $this->app->instance('list', $list);
        $sandbox = new Sandbox($this->app);

        $values[$service] = $values[$service] + ['of a request' => 'ada'];
        $values[$this] = 'ada';
        $list[] = 'ada';
        $plain->user = 'ada';
        $time->modify('+1 year');
        $inner->set('locale', 'fr');
        $sandbox->restore();

        self::assertCount(1, $values);
        self::assertSame(['of the boot' => 1], $values[$service]);
        self::assertSame([$inner], $list->getArrayCopy());
        self::assertSame('en', $inner->get('locale'));
        self::assertFalse(isset($plain->user));
        self::assertSame('2020', $time->format('Y'));
    }

    /**
     * @dataProvider late
     * @param \Closure(\Closure(): void): mixed $left what the request leaves in the container
     */
    public function testWhatLateDestructorsSetIsGone(\Closure $left): void
    {
        $sandbox = new Sandbox($this->app);
        $app = $this->app;
        $isRun = false;
        $this->app->instance('left', $left(static function () use ($app, &$isRun): void {
            $isRun = true;
            $app->make('config')->set('app.locale', 'fr');
            $app->instance('user', 'ada');
        }));
        $sandbox->restore();

        self::assertTrue($isRun);
        self::assertSame('en', Config::get('app.locale'));
        self::assertFalse($this->app->bound('user'));
    }

    /** @return array<string, array{\Closure}> */
    public static function late(): array
    {
        $object = static fn (\Closure $end): object => new class ($end) {
            public function __construct(private readonly \Closure $end)
            {
            }

            public function __destruct()
            {
                ($this->end)();
            }
        };

        return [
            'a destructor' => [$object],
            'one that leaves another one' => [static fn (\Closure $end): object => $object(
                static fn () => Facade::getFacadeApplication()->instance('more', $object($end)),
            )],
            'a suspended fiber' => [static function (\Closure $end): \Fiber {
                $fiber = new \Fiber(static function () use ($end): void {
                    try {
                        \Fiber::suspend();
                    } finally {
                        $end();
                    }
                });
                $fiber->start();

                return $fiber;
            }],
            'a generator' => [static function (\Closure $end): \Generator {
                $generator = (static function () use ($end): \Generator {
                    try {
                        yield 1;
                    } finally {
                        $end();
                    }
                })();
                $generator->current();

                return $generator;
            }],
        ];
    }

    /** To make one in each look would never end. */
    public function testServicesThatAreNotThereAreNotMade(): void
    {
        $made = 0;
        foreach (['log', 'db'] as $name) {
            $this->app->singleton($name, static function () use (&$made): object {
                $made++;

                return new \ArrayObject();
            });
            $this->app->make($name);
            $this->app->forgetInstance($name);
            self::assertTrue($this->app->resolved($name));
        }
        (new Sandbox($this->app))->restore();
        self::assertSame(2, $made);
    }

    public function testDestructorsWithoutAnEndEndTheWorker(): void
    {
        $sandbox = new Sandbox($this->app);
        $this->app->instance('left', new class ($this->app) {
            public int $times = 0;

            public function __construct(private readonly Application $app)
            {
            }

            public function __destruct()
            {
                if ($this->times < 50) {
                    $next = new self($this->app);
                    $next->times = $this->times + 1;
                    $this->app->instance('left', $next);
                }
            }
        });
        $this->expectException(WorkerSpoiled::class);
        $this->expectExceptionMessage('without an end');
        $sandbox->restore();
    }

    public function testARequestThatLeavesNothingIsLookedAtOnce(): void
    {
        $sandbox = new Sandbox($this->app);
        $sandbox->restore();
        $looks = 0;
        $this->app->instance('log', new class ($looks) {
            public function __construct(public int &$looks)
            {
            }

            public function flushSharedContext(): void
            {
                $this->looks++;
            }
        });
        $sandbox = new Sandbox($this->app);
        $sandbox->restore();
        self::assertSame(1, $looks);
        $this->app->instance('user', 'ada');
        $sandbox->restore();
        self::assertSame(3, $looks);
    }

    public function testServicesOfOthersGoBackIfTheyAreNamed(): void
    {
        $cart = new class {
            /** @var list<string> */
            public array $goods = [];
        };
        $other = clone $cart;
        $this->app->instance('cart', $cart);
        $this->app->instance('other', $other);
        $sandbox = new Sandbox($this->app, ['cart']);

        $cart->goods[] = $other->goods[] = 'a thing';
        $sandbox->restore();

        self::assertSame([[], ['a thing']], [$cart->goods, $other->goods]);
    }

    /**
     * What services hold, one or more levels deep.
     *
     * @dataProvider changes
     * @param \Closure(Application): mixed $change
     * @param \Closure(Application): mixed $look
     */
    public function testWhatServicesHoldGoesBack(\Closure $change, \Closure $look): void
    {
        $app = $this->booted();
        $before = $look($app);
        $sandbox = new Sandbox($app);
        for ($request = 1; $request <= 2; $request++) {
            $change($app);
            self::assertNotEquals($before, $look($app));
            $sandbox->restore();
            self::assertEquals($before, $look($app));
        }
    }

    /** With what a boot makes in `warm`, and one of each that an application may use there. */
    private function booted(): Application
    {
        $app = $this->app;
        $app->instance('config', new Repository([
            'app' => ['locale' => 'en', 'fallback_locale' => 'en', 'url' => 'http://localhost'],
            'auth' => [
                'defaults' => ['guard' => 'web'],
                'guards' => ['web' => ['driver' => 'token', 'provider' => 'users']],
                'providers' => ['users' => ['driver' => 'database', 'table' => 'users']],
            ],
            'cache' => ['default' => 'array', 'stores' => ['array' => ['driver' => 'array']], 'prefix' => 'p'],
            'database' => ['default' => 'main', 'connections' => [
                'main' => ['driver' => 'sqlite', 'database' => ':memory:', 'prefix' => 'own_'],
            ]],
            'filesystems' => ['default' => 'disk', 'disks' => ['disk' => ['driver' => 'local', 'root' => __DIR__]]],
            'logging' => ['default' => 'null', 'channels' => [
                'null' => ['driver' => 'monolog', 'handler' => NullHandler::class],
            ]],
            'mail' => ['default' => 'array', 'mailers' => ['array' => ['transport' => 'array']]],
            'queue' => ['default' => 'sync', 'connections' => ['sync' => ['driver' => 'sync']]],
            'view' => ['paths' => [__DIR__], 'compiled' => \sys_get_temp_dir()],
        ]));
        $app->instance('request', Request::create('http://localhost/page'));
        $providers = [
            AuthServiceProvider::class, CacheServiceProvider::class, DatabaseServiceProvider::class,
            FilesystemServiceProvider::class, MailServiceProvider::class, NotificationServiceProvider::class,
            HashServiceProvider::class, QueueServiceProvider::class, TranslationServiceProvider::class,
            ValidationServiceProvider::class, ViewServiceProvider::class,
        ];
        \array_map($app->register(...), $providers);
        $app->singleton(HttpClient::class);
        $app->make('router')->get('page', static fn (): string => 'a page')->name('page');
        $app->make('cache')->store();
        $app->make('db')->connection()->getPdo();
        $app->make('filesystem')->disk();
        $app->make('log')->channel();
        $app->make('mail.manager')->mailer();
        $app->make('queue')->connection();
        $app->make('auth')->guard();
        $app->make('auth.driver');
        $names = [Gate::class, HttpClient::class, ChannelManager::class, 'translator', 'url', 'validator', 'view'];
        \array_map($app->make(...), $names);

        return $app;
    }

    /** @return array<string, array{\Closure(Application): mixed, \Closure(Application): mixed}> */
    public static function changes(): array
    {
        $finder = static fn (Application $app): FileViewFinder => $app['view']->getFinder();
        $paths = static fn (Application $app): array => [$finder($app)->getPaths(), $finder($app)->getHints()];
        $route = static fn (Application $app): Route => $app['routes']->getRoutes()[0];
        $database = static fn (Application $app): Connection => $app['db']->connection();
        $channel = static fn (Application $app): Logger => $app['log']->channel()->getLogger();

        return [
            'a path of views' => [static fn (Application $app) => $app['view']->addLocation('/b'), $paths],
            'all paths of views' => [static fn (Application $app) => $finder($app)->setPaths(['/b']), $paths],
            'a namespace of views' => [static fn (Application $app) => $app['view']->addNamespace('n', '/b'), $paths],
            'another one' => [static fn (Application $app) => $app['view']->replaceNamespace('n', '/b'), $paths],
            'an extension of views' => [
                static fn (Application $app) => $app['view']->addExtension('b', 'php'),
                static fn (Application $app) => $finder($app)->getExtensions(),
            ],
            'a view that was found' => [
                static fn (Application $app) => $finder($app)->find('bootstrap'),
                static fn (Application $app) => self::property($finder($app), 'views'),
            ],
            'an engine of views' => [
                static fn (Application $app) => $app['view']->getEngineResolver()->register('b', static fn () => null),
                static fn (Application $app) => self::property($app['view']->getEngineResolver(), 'resolvers'),
            ],
            'a directive of Blade' => [
                static fn (Application $app) => $app['blade.compiler']->directive('b', static fn () => 'b'),
                static fn (Application $app) => $app['blade.compiler']->getCustomDirectives(),
            ],
            'a namespace of translations' => [
                static fn (Application $app) => $app['translator']->addNamespace('n', '/b'),
                static fn (Application $app) => $app['translator']->getLoader()->namespaces(),
            ],
            'defaults of a route' => [
                static fn (Application $app) => $route($app)->defaults('tenant', 'b'),
                static fn (Application $app) => $route($app)->defaults,
            ],
            'a pattern of a route' => [
                static fn (Application $app) => $route($app)->where('id', 'b'),
                static fn (Application $app) => $route($app)->wheres,
            ],
            'the name of a route' => [
                static fn (Application $app) => $route($app)->name('.b'),
                static fn (Application $app) => $route($app)->getName(),
            ],
            'middleware of a route' => [
                static fn (Application $app) => $route($app)->middleware('b'),
                static fn (Application $app) => $route($app)->middleware(),
            ],
            'the action of a route' => [
                static fn (Application $app) => $route($app)->setAction(['uses' => 'B@b'] + $route($app)->getAction()),
                static fn (Application $app) => $route($app)->getAction('uses'),
            ],
            'the URI of a route' => [
                static fn (Application $app) => $route($app)->setUri('b'),
                static fn (Application $app) => $route($app)->uri(),
            ],
            'parameters of the URL' => [
                static fn (Application $app) => $app['url']->defaults(['tenant' => 'b']),
                static fn (Application $app) => $app['url']->getDefaultParameters(),
            ],
            'the prefix of tables' => [
                static fn (Application $app) => $database($app)->setTablePrefix('b_'),
                static fn (Application $app) => [
                    $database($app)->getTablePrefix(), $database($app)->getQueryGrammar()->getTablePrefix(),
                ],
            ],
            'the log of queries' => [
                static fn (Application $app) => $database($app)->enableQueryLog(),
                static fn (Application $app) => $database($app)->logging(),
            ],
            'reading where it writes' => [
                static fn (Application $app) => $database($app)->useWriteConnectionWhenReading(),
                static fn (Application $app) => self::property($database($app), 'readOnWriteConnection'),
            ],
            'records that were modified' => [
                static fn (Application $app) => $database($app)->recordsHaveBeenModified(),
                static fn (Application $app) => $database($app)->hasModifiedRecords(),
            ],
            'functions before a query' => [
                static fn (Application $app) => $database($app)->beforeExecuting(static fn () => null),
                static fn (Application $app) => \array_filter(
                    self::property($database($app), 'beforeExecutingCallbacks'),
                    // Ours watches for what changes the session.
                    static fn (\Closure $it): bool => !(new \ReflectionFunction($it))->getClosureThis()
                        instanceof Connections,
                ),
            ],
            'functions after a transaction' => [
                static fn (Application $app) => $app['db.transactions']->begin('main', 1),
                static fn (Application $app) => \count(self::property($app['db.transactions'], 'transactions')),
            ],
            'the prefix of a store of the cache' => [
                static fn (Application $app) => $app['cache']->store()->setDefaultCacheTime(7),
                static fn (Application $app) => $app['cache']->store()->getDefaultCacheTime(),
            ],
            'a processor of the log' => [
                static fn (Application $app) => $channel($app)->pushProcessor(static fn ($record) => $record),
                static fn (Application $app) => $channel($app)->getProcessors(),
            ],
            'a handler of the log' => [
                static fn (Application $app) => $channel($app)->pushHandler(new NullHandler()),
                static fn (Application $app) => $channel($app)->getHandlers(),
            ],
            'the sender of mail' => [
                static fn (Application $app) => $app['mail.manager']->mailer()->alwaysFrom('b@localhost'),
                static fn (Application $app) => self::property($app['mail.manager']->mailer(), 'from'),
            ],
            'the channel of notifications' => [
                static fn (Application $app) => $app[ChannelManager::class]->deliverVia('b'),
                static fn (Application $app) => $app[ChannelManager::class]->deliversVia(),
            ],
            'URLs of a disk' => [
                static fn (Application $app) => $app['filesystem']->disk()
                    ->buildTemporaryUrlsUsing(static fn () => 'b'),
                static fn (Application $app) => self::property($app['filesystem']->disk(), 'temporaryUrlCallback'),
            ],
            'the name of a queue' => [
                static fn (Application $app) => $app['queue']->connection()->setConnectionName('b'),
                static fn (Application $app) => $app['queue']->connection()->getConnectionName(),
            ],
            'an ability' => [
                static fn (Application $app) => $app[Gate::class]->define('b', static fn () => true),
                static fn (Application $app) => $app[Gate::class]->has('b'),
            ],
            'a user' => [
                static fn (Application $app) => $app['auth']->guard()->setUser(new GenericUser(['id' => 7])),
                static fn (Application $app) => self::property($app['auth']->guard(), 'user'),
            ],
            'a rule' => [
                static fn (Application $app) => $app['validator']->extend('b', static fn () => true),
                static fn (Application $app) => self::property($app['validator'], 'extensions'),
            ],
            'answers that the client of HTTP fakes' => [
                static fn (Application $app) => $app[HttpClient::class]->fake(),
                static fn (Application $app) => \count(self::property($app[HttpClient::class], 'stubCallbacks')),
            ],
        ];
    }

    private static function property(object $object, string $name): mixed
    {
        $property = new \ReflectionProperty($object, $name);
        $property->setAccessible(true);

        return $property->getValue($object);
    }

    public function testAnObjectThatHoldsItselfIsFoundOnce(): void
    {
        $holder = new \ArrayObject();
        $holder['self'] = [$holder];
        $this->app->instance('loop', $loop = new Repository());
        $loop->set('self', [$loop, $holder]);
        $items = $loop->all();
        $items['again'] = &$items;
        $found = Held::in([$items, $loop], ['Illuminate\\Config\\']);
        self::assertSame([$loop, $holder], $found);
    }
}
