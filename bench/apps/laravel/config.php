<?php

// What differs from, or is not in, the defaults of Laravel's own classes.

declare(strict_types=1);

$data = data_folder('laravel');
// What a run of the benchmark wants otherwise: settings of php.ini, which all servers have.
$wanted = static fn (string $name, string $default): string => (\get_cfg_var("bench.$name") ?: $default);
// `make bench-cache` has them in a storage of the server.
$session = $wanted('sessions', \getenv('BENCH_SESSION') ?: 'file');

return [
    'app' => [
        'name' => 'bench',
        'env' => 'production',
        'debug' => $wanted('debug', '0') === '1',
        'url' => 'http://localhost',
        'timezone' => 'UTC',
        'locale' => 'en',
        'fallback_locale' => 'en',
        'cipher' => 'AES-256-CBC',
        // Known to everybody, as the passwords are: a cookie that was made once can be sent by
        // every benchmark.
        'key' => 'base64:YmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmU=',
        'providers' => [
            Illuminate\Auth\AuthServiceProvider::class,
            Illuminate\Broadcasting\BroadcastServiceProvider::class,
            Illuminate\Bus\BusServiceProvider::class,
            Illuminate\Cache\CacheServiceProvider::class,
            Illuminate\Foundation\Providers\ConsoleSupportServiceProvider::class,
            Illuminate\Cookie\CookieServiceProvider::class,
            Illuminate\Database\DatabaseServiceProvider::class,
            Illuminate\Encryption\EncryptionServiceProvider::class,
            Illuminate\Filesystem\FilesystemServiceProvider::class,
            Illuminate\Foundation\Providers\FoundationServiceProvider::class,
            Illuminate\Hashing\HashServiceProvider::class,
            Illuminate\Mail\MailServiceProvider::class,
            Illuminate\Notifications\NotificationServiceProvider::class,
            Illuminate\Pagination\PaginationServiceProvider::class,
            Illuminate\Pipeline\PipelineServiceProvider::class,
            Illuminate\Queue\QueueServiceProvider::class,
            Illuminate\Redis\RedisServiceProvider::class,
            Illuminate\Auth\Passwords\PasswordResetServiceProvider::class,
            Illuminate\Session\SessionServiceProvider::class,
            Illuminate\Translation\TranslationServiceProvider::class,
            Illuminate\Validation\ValidationServiceProvider::class,
            Illuminate\View\ViewServiceProvider::class,
            App\RouteServiceProvider::class,
            ...($session === 'pronghorn' ? [Pronghorn\Laravel\PronghornServiceProvider::class] : []),
        ],
        'aliases' => [],
    ],
    'auth' => [
        'defaults' => ['guard' => 'web', 'passwords' => 'users'],
        'guards' => ['web' => ['driver' => 'session', 'provider' => 'users']],
        'providers' => ['users' => ['driver' => 'eloquent', 'model' => App\User::class]],
    ],
    'cache' => [
        'default' => 'array',
        'stores' => [
            'array' => ['driver' => 'array'],
            'pronghorn' => ['driver' => 'pronghorn', 'storage' => 'sessions'],
        ],
        'prefix' => 'bench',
    ],
    'bench' => ['database_ms' => $wanted('database_ms', '0')],
    'database' => [
        'default' => 'sqlite',
        'connections' => [
            'sqlite' => ['driver' => 'sqlite', 'database' => database($data, [App\Tables::class, 'make'])],
        ],
    ],
    'filesystems' => ['default' => 'local', 'disks' => ['local' => ['driver' => 'local', 'root' => "$data/uploads"]]],
    // As in App\Tables.
    'hashing' => ['driver' => 'bcrypt', 'bcrypt' => ['rounds' => 4]],
    'logging' => [
        'default' => 'errorlog',
        'channels' => [
            'errorlog' => ['driver' => 'errorlog', 'level' => 'warning'],
            'deprecations' => ['driver' => 'monolog', 'handler' => Monolog\Handler\NullHandler::class],
        ],
    ],
    'queue' => ['default' => 'sync', 'connections' => ['sync' => ['driver' => 'sync']]],
    'session' => [
        'driver' => $session,
        'files' => "$data/sessions",
        'lifetime' => 120,
        'expire_on_close' => false,
        'encrypt' => false,
        // A client without cookies makes a file per request: with so many of them, looking for old
        // ones measures that. A run asks for it by naming the driver.
        'lottery' => [$wanted('sessions', '') === 'file' ? 2 : 0, 100],
        'cookie' => 'bench_session',
        'path' => '/',
        'domain' => null,
        'secure' => null,
        'http_only' => true,
        'same_site' => 'lax',
    ],
    'view' => ['paths' => [__DIR__ . '/resources/views'], 'compiled' => "$data/views"],
];
