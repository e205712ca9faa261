<?php

// A kept worker that includes a page as php-fpm runs it.

declare(strict_types=1);

require __DIR__ . '/../../../php/worker/autoload.php';

Pronghorn\serve(static function (): void {
    require __DIR__ . '/../../apps/hello/public/index.php';
});
