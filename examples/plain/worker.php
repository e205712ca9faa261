<?php

// A front controller as it is, in a kept worker. Start it from the repository's root with
//     pronghorn serve -c examples/plain/pronghorn.yaml
// and open http://127.0.0.1:8080/. It takes the extension.

declare(strict_types=1);

// With Composer: require __DIR__ . '/vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';
Pronghorn\serve(fn () => require __DIR__ . '/public/index.php');
