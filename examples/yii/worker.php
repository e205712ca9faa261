<?php

// A Yii 3 application, kept in memory. Put this file into the folder that yiisoft/app has made,
// `composer require pronghorn/worker`, and start it there with
//     pronghorn serve worker.php

declare(strict_types=1);

require __DIR__ . '/src/bootstrap.php';
$runner = new Yiisoft\Yii\Runner\Http\HttpApplicationRunner(__DIR__, environment: App\Environment::appEnv());
$get = $runner->getContainer()->get(...);
// What a request has used, and says how, is reset behind its reply.
Pronghorn\serve(fn (Psr\Http\Message\ServerRequestInterface $request) => $get(Yiisoft\Yii\Http\Application::class)
    ->handle(Pronghorn\Call::current()->defer(fn () => $get(Yiisoft\Di\StateResetter::class)->reset()) ?? $request));
