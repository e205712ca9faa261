<?php

// Shows the programs of the server, as a page of an application might.

declare(strict_types=1);

use Pronghorn\Request;
use Pronghorn\Rpc;

require __DIR__ . '/../../php/autoload.php';

$rpc = Rpc::connect();

Pronghorn\serve(static function (Request $request) use ($rpc): string {
    $page = '';
    foreach ($rpc->call('programs.List')['programs'] as $program) {
        foreach ($program['processes'] as $process) {
            $page .= "{$program['name']}:{$process['index']} {$process['state']}\n";
        }
    }

    return $page;
});
