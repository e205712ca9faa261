<?php

// A mail trap that speaks as much SMTP as mailers do (RFC 5321). Each mail becomes a file in the
// directory `mails`; nothing is sent on.

declare(strict_types=1);

use Pronghorn\TcpConnection;
use Pronghorn\TcpEvent;

require __DIR__ . '/../../php/autoload.php';

(new Pronghorn\Worker())->onTcp(function (TcpConnection $client): ?string {
    if ($client->event !== TcpEvent::Message) {
        return null;
    }
    $line = $client->message;
    // After DATA, lines are the mail, until one with a dot alone. A state has room for a path, not
    // for a mail.
    if (isset($client->state['draft'])) {
        if ($line !== '.') {
            // A dot at the beginning of a line is doubled on the way.
            file_put_contents($client->state['draft'], preg_replace('/^\.\./', '.', $line) . "\n", FILE_APPEND);

            return null;
        }
        rename($client->state['draft'], substr($client->state['draft'], 0, -strlen('.draft')) . '.eml');
        $client->state = [];

        return "250 it is in the trap\r\n";
    }
    switch (strtoupper((string) strtok($line, ' :'))) {
        case 'EHLO':
        case 'HELO':
        case 'NOOP':
        case 'RSET':
            $client->state = [];

            return "250 OK\r\n";
        case 'MAIL':
            $client->state = ['from' => $line];

            return "250 OK\r\n";
        case 'RCPT':
            if (!isset($client->state['from'])) {
                return "503 MAIL comes first\r\n";
            }
            $client->state['to'] = true;

            return "250 OK\r\n";
        case 'DATA':
            if (!isset($client->state['to'])) {
                return "503 RCPT comes first\r\n";
            }
            @mkdir(__DIR__ . '/mails');
            $client->state['draft'] = __DIR__ . '/mails/' . date('Ymd-His-') . bin2hex(random_bytes(4)) . '.draft';
            touch($client->state['draft']);

            return "354 end with a dot alone\r\n";
        case 'QUIT':
            $client->close();

            return "221 bye\r\n";
        default:
            return "500 no such command here\r\n";
    }
})->run();
