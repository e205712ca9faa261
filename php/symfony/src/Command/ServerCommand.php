<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Command;

use Symfony\Component\Console\Command\Command;
use Symfony\Component\Console\Input\InputInterface;
use Symfony\Component\Console\Output\OutputInterface;

/** A command that the server's binary carries out, in the folder of the project. */
final class ServerCommand extends Command
{
    /** What PHP's child says that has no program to become. */
    private const NOT_FOUND = 127;
    /** As in a shell: the number of the signal is added. */
    private const BY_SIGNAL = 128;
    /** A person does not notice it. */
    private const LOOK_MICROSECONDS = 20_000;

    /** @param list<string> $arguments of the binary */
    public function __construct(
        string $name,
        string $description,
        private readonly array $arguments,
        private readonly string $folder,
    ) {
        parent::__construct($name);
        $this->setDescription($description);
    }

    protected function execute(InputInterface $input, OutputInterface $output): int
    {
        if (!\is_file("$this->folder/pronghorn.yaml") && !\is_file("$this->folder/.rr.yaml")) {
            $output->writeln("<error>There is no $this->folder/pronghorn.yaml: `pronghorn init` writes one.</error>");

            return self::FAILURE;
        }
        $binary = (string) (\getenv('PRONGHORN_BINARY') ?: 'pronghorn');
        $code = $this->runServer([$binary, ...$this->arguments]);
        if ($code === self::NOT_FOUND) {
            $output->writeln(
                "<error>`$binary` can't be started. Install the server, or name its binary by the variable"
                    . ' PRONGHORN_BINARY.</error>'
            );

            return self::FAILURE;
        }

        return $code;
    }

    /**
     * Hands signals on to it: this process ends with it, and has its exit code.
     *
     * @param list<string> $command
     */
    private function runServer(array $command): int
    {
        $signals = \function_exists('pcntl_signal') ? [\SIGTERM, \SIGHUP, \SIGUSR2] : [];
        $got = [];
        foreach ($signals as $signal) {
            \pcntl_signal($signal, static function (int $number) use (&$got): void {
                $got[] = $number;
            });
        }
        if ($signals !== []) {
            // A terminal sends it to both. What is ignored here, the server would ignore, too.
            \pcntl_signal(\SIGINT, static fn (): bool => true);
        }
        // Its streams are those of the console, so that a person sees it as it is.
        $server = @\proc_open($command, [\STDIN, \STDOUT, \STDERR], $pipes, $this->folder);
        if ($server === false) {
            return self::NOT_FOUND;
        }
        // While `proc_close()` waits, PHP calls no handlers of signals.
        while (($status = \proc_get_status($server))['running']) {
            $signals !== [] && \pcntl_signal_dispatch();
            while ($got !== []) {
                \proc_terminate($server, \array_shift($got));
            }
            \usleep(self::LOOK_MICROSECONDS); // phpcs:ignore Generic.PHP.ForbiddenFunctions -- it waits
        }

        return $status['signaled'] ? self::BY_SIGNAL + $status['termsig'] : $status['exitcode'];
    }
}
