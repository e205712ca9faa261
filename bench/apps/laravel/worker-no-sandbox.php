<?php

// As worker.php, and nothing is set back between two requests: what our sandbox costs is the
// difference.

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Http\UploadedFile;
use Pronghorn\HttpFoundation\Foundation;

$app = require __DIR__ . '/bootstrap.php';
require __DIR__ . '/../../../php/laravel/autoload.php';

$kernel = $app->make(Kernel::class);
$app->instance('request', Request::create('http://localhost'));
$kernel->bootstrap();
$settings = require __DIR__ . '/../../../php/laravel/config/pronghorn.php';
foreach ($settings['warm'] as $name) {
    $app->bound($name) && $app->make($name);
}

Pronghorn\serve(static function (Pronghorn\Request $asked) use ($kernel): Pronghorn\Response {
    $request = Request::createFromBase(Foundation::request($asked, UploadedFile::class));

    return Foundation::answer($request, $kernel->handle(...), $kernel->terminate(...), static fn () => null);
});
