<?php

declare(strict_types=1);

return [
    'name' => 'Laravel',
    'env' => 'production',
    'debug' => false,
    'url' => 'http://127.0.0.1:8080',
    'timezone' => 'UTC',
    'locale' => 'en',
    'fallback_locale' => 'en',
    'cipher' => 'AES-256-CBC',
    // Each application has its own: `php artisan key:generate --show` makes one.
    'key' => env('APP_KEY', 'base64:bm90IGEgc2VjcmV0OiBhbiBleGFtcGxlLCBhbmQgcHU='),
    'providers' => [
        Illuminate\Bus\BusServiceProvider::class,
        Illuminate\Cache\CacheServiceProvider::class,
        Illuminate\Cookie\CookieServiceProvider::class,
        Illuminate\Database\DatabaseServiceProvider::class,
        Illuminate\Encryption\EncryptionServiceProvider::class,
        Illuminate\Filesystem\FilesystemServiceProvider::class,
        Illuminate\Foundation\Providers\ConsoleSupportServiceProvider::class,
        Illuminate\Foundation\Providers\FoundationServiceProvider::class,
        Illuminate\Queue\QueueServiceProvider::class,
        Illuminate\Session\SessionServiceProvider::class,
        Illuminate\Translation\TranslationServiceProvider::class,
        Illuminate\Validation\ValidationServiceProvider::class,
        Illuminate\View\ViewServiceProvider::class,
        App\RouteServiceProvider::class,
        // With Composer it is discovered.
        Pronghorn\Laravel\PronghornServiceProvider::class,
    ],
    'aliases' => [],
];
