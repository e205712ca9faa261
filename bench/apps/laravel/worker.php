<?php

// The same, booted once and kept by Pronghorn.

declare(strict_types=1);

use App\Rewind;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Http\UploadedFile;
use Pronghorn\Call;

require __DIR__ . '/../../../php/worker/autoload.php';
require __DIR__ . '/../http-foundation.php';

$app = require __DIR__ . '/bootstrap.php';
$kernel = $app->make(Kernel::class);
$kernel->bootstrap();
// What would else be made anew for each request.
foreach (['auth', 'blade.compiler', 'cookie', 'encrypter', 'hash', 'log', 'session', 'translator', 'view'] as $name) {
    $app->make($name);
}
$app->make('db')->connection()->getPdo();
$rewind = new Rewind($app);

Pronghorn\serve(static function (Pronghorn\Request $asked) use ($kernel, $rewind): Pronghorn\Response {
    $request = Request::createFromBase(foundation_request($asked, UploadedFile::class));
    $response = null;
    // After the reply, also when there is none.
    Call::current()->defer(static function () use ($kernel, $rewind, $request, &$response): void {
        try {
            $response === null || $kernel->terminate($request, $response);
        } finally {
            $rewind();
        }
    });
    $response = $kernel->handle($request);

    return foundation_reply($response);
});
