<?php

// As worker.php, and nothing is set back between two requests: what our sandbox costs is the
// difference.

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Http\UploadedFile;
use Pronghorn\HttpFoundation\Foundation;

$kernel = (require __DIR__ . '/booted.php')->make(Kernel::class);

Pronghorn\serve(static function (Pronghorn\Request $asked) use ($kernel): Pronghorn\Response {
    $request = Request::createFromBase(Foundation::request($asked, UploadedFile::class));

    return Foundation::answer($request, $kernel->handle(...), $kernel->terminate(...), static fn () => null);
});
