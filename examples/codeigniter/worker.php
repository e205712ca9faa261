<?php

// A CodeIgniter application (4.7 or newer), a process for each request, which is forked from one
// that has booted it. Put this file into its folder, `composer require pronghorn/worker`, and
// start it there with
//     pronghorn serve -c pronghorn.yaml

require __DIR__ . '/vendor/autoload.php';
define('FCPATH', __DIR__ . '/public/');
function is_cli(): bool { return false; } // CodeIgniter's own goes by the name of PHP's server API
$app = CodeIgniter\Boot::bootWorker(new Config\Paths());
Pronghorn\serve(fn () => [CodeIgniter\Config\Services::resetSingle('superglobals'), $app->run()]);
