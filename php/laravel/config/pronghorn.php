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

    // These go back, after each request, to where they were at the boot: services by their names in
    // the container, or by beginnings of class names, which stand for static properties as well.
    // Laravel's own and those of App\ always do.
    'reset' => [],

    // Classes whose static properties stay, by beginnings of their names: caches of App\ that are
    // the same for all visitors.
    'keep_statics' => [],

    // Connections to databases stay open from request to request, as long as nothing of one can
    // reach the next; `false` closes them.
    'keep_connections' => true,

];
