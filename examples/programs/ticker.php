<?php

declare(strict_types=1);

$index = (int) getenv('PRONGHORN_PROGRAM_INDEX');

// What any program needs in order to stop when it is asked: without `pcntl`, the signal ends it.
$goesOn = true;
if (function_exists('pcntl_signal')) {
    pcntl_async_signals(true);
    pcntl_signal(SIGINT, function () use (&$goesOn): void {
        $goesOn = false;
    });
}

$socket = stream_socket_client('udg://' . getenv('NOTIFY_SOCKET'));
fwrite($socket, "STATUS=counting\nREADY=1");

for ($count = 0; $goesOn; $count++) {
    if ($count % 2 === $index) {
        echo "$count is mine\n";
        file_put_contents("var/$index", "$count\n");
    }
    sleep(1);
}
echo "done\n";
