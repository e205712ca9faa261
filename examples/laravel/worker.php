<?php

// A Laravel application, booted once and kept. Start it from the repository's root with
//     pronghorn serve -c examples/laravel/pronghorn.yaml
// and open http://127.0.0.1:8080/

declare(strict_types=1);

// With Composer this file is vendor/bin/pronghorn-laravel.
require __DIR__ . '/bootstrap/autoload.php';
(new Pronghorn\Laravel\Worker(require __DIR__ . '/bootstrap/app.php'))->run();
