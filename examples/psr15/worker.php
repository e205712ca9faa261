<?php

// A PSR-15 handler, kept in memory. Start it from the repository's root with
//     pronghorn serve -c examples/psr15/pronghorn.yaml
// and open http://127.0.0.1:8080/you

declare(strict_types=1);

// With Composer: require __DIR__ . '/vendor/autoload.php'; instead of the first two.
require __DIR__ . '/../../php/worker/autoload.php';
require 'Nyholm/Psr7/autoload.php'; // Debian's php-nyholm-psr7
Pronghorn\serve(require __DIR__ . '/app.php');
