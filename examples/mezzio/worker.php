<?php

// A Mezzio application, kept in memory. Put this file into the folder that mezzio/mezzio-skeleton
// has made, `composer require pronghorn/worker`, and start it there with
//     pronghorn serve worker.php

declare(strict_types=1);

require __DIR__ . '/vendor/autoload.php';
$container = require __DIR__ . '/config/container.php';
$parts = [$container->get(Mezzio\Application::class), $container->get(Mezzio\MiddlewareFactory::class), $container];
array_map(fn (string $part) => (require __DIR__ . "/config/$part.php")(...$parts), ['pipeline', 'routes']);
Pronghorn\serve($parts[0]);
