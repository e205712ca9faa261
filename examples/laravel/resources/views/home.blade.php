<!doctype html>
<title>Laravel</title>
<link rel="stylesheet" href="/style.css">
<p>This is your visit {{ $visits }}. {{ session('status') }}</p>
<p>A job has greeted {{ $greeted }}.</p>
@foreach ($errors->all() as $error)
<p>{{ $error }}</p>
@endforeach
<form method="post">@csrf<input name="name" value="{{ old('name') }}"> <button>Greet me</button></form>
