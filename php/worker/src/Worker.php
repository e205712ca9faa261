<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\Failure;
use Pronghorn\Internal\Relay;
use Psr\Http\Server\RequestHandlerInterface;

final class Worker
{
    private \Closure $handler;

    public function onRequest(callable|RequestHandlerInterface $handler): static
    {
        $this->handler = $handler(...);

        return $this;
    }

    public function run(): void
    {
        $fd = \getenv('PRONGHORN_FD');
        if ($fd === false) {
            \fwrite(\STDERR, "This is a worker script. Start it with: pronghorn serve worker.php\n");
            exit(1);
        }
        $transport = new Relay(\fopen('php://fd/' . $fd, 'r+'));
        $transport->announce(['http']);
        while (($exchange = $transport->next()) !== null) {
            $this->serve($exchange);
        }
    }

    private function serve(Exchange $exchange): void
    {
        Exchange::$current = $exchange;
        try {
            $exchange->transport->reply($exchange->id, 200, [], ($this->handler)($exchange->request));
        } catch (ConnectionLost $lost) {
            throw $lost;
        } catch (\Throwable $thrown) {
            $exchange->transport->error($exchange->id, Failure::of($thrown));
        } finally {
            Exchange::$current = null;
        }
    }
}
