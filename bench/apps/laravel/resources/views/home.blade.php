<!doctype html>
<title>bench</title>
<p>Visit {{ $visits }} of {{ $user->name ?? 'a guest' }}</p>
<form method="post" action="/logout">@csrf<button>Log out</button></form>
