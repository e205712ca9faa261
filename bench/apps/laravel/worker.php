<?php

// The same, booted once and kept by Pronghorn.

declare(strict_types=1);

$app = require __DIR__ . '/bootstrap.php';
require __DIR__ . '/../../../php/laravel/autoload.php';

(new Pronghorn\Laravel\Worker($app))->run();
