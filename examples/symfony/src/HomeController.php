<?php

declare(strict_types=1);

namespace App;

use Symfony\Component\HttpFoundation\RedirectResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\Messenger\MessageBusInterface;

final class HomeController
{
    public function __construct(private readonly Greeter $greeter, private readonly MessageBusInterface $bus)
    {
    }

    public function home(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $session->get('visits', 0) + 1);
        $greeted = \htmlspecialchars($this->greeter->last());

        return new Response(<<<HTML
            <!doctype html>
            <title>Symfony</title>
            <link rel="stylesheet" href="/style.css">
            <p>This is your visit {$session->get('visits')}.</p>
            <p>A message has greeted $greeted.</p>
            <form method="post"><input name="name"> <button>Greet me</button></form>

            HTML);
    }

    public function greet(Request $request): Response
    {
        $this->bus->dispatch(new Greet(\substr((string) $request->request->get('name'), 0, 50)));

        return new RedirectResponse('/', 303);
    }
}
