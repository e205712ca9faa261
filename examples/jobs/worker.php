<?php

// Runs jobs.

declare(strict_types=1);

use Pronghorn\Job;

require __DIR__ . '/../../php/autoload.php';

(new Pronghorn\Worker())->onJob(static function (Job $job): string {
    $name = $job->payload()['name'];
    if ($name === '') {
        $job->fail('nobody is to be greeted');
    }

    return "Hello, $name! This was attempt $job->attempt.";
})->run();
