<?php

// How a worker of Pronghorn keeps this application.

declare(strict_types=1);

return [

    // Services that are made at the boot, once for all requests of a worker. What keeps something
    // of a request (a guard, the session's store, the redirector) must not be among them.
    'warm' => [
        'auth', 'blade.compiler', 'cache', 'config', 'cookie', 'db', 'encrypter', 'events', 'files', 'hash', 'log',
        'router', 'routes', 'session', 'translator', 'url', 'view',
    ],

    // Services of the boot that go back, after each request, to where they were then: names in the
    // container, or beginnings of class names. Laravel's own and those of App\ always do.
    'reset' => [],

    // Connections to databases stay open from request to request; `false` closes them.
    'keep_connections' => true,

];
