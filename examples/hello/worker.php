<?php

// A first worker. Start it from the repository's root with
//     pronghorn serve -c examples/hello/pronghorn.yaml
// and open http://127.0.0.1:8080/?name=you

declare(strict_types=1);

// With Composer: require __DIR__ . '/vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';

Pronghorn\serve(function (Pronghorn\Request $request): string {
    $name = htmlspecialchars($request->query()['name'] ?? 'world');

    return "Hello, $name!\n";
});
