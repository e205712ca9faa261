<?php

// A CodeIgniter application (4.7 or newer), a process for each request, which is forked from one
// that has booted it. Put this file into its folder, `composer require pronghorn/worker`, and
// start it there with
//     pronghorn serve -c pronghorn.yaml

declare(strict_types=1);

require __DIR__ . '/vendor/autoload.php';
define('FCPATH', __DIR__ . '/public/');
function is_cli(): bool { return false; } // phpcs:ignore -- CodeIgniter's own goes by PHP_SAPI
$app = CodeIgniter\Boot::bootWorker(new Config\Paths());
Pronghorn\serve(fn () => [CodeIgniter\Config\Services::resetSingle('superglobals'), $app->run()]);
