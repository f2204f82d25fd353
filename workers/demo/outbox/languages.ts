/** The shop's texts in the example outbox, by language. mails.ts fills in `{words}`. */
export interface Phrases {
  tag: string
  names: readonly string[]
  cities: readonly string[]
  /** Decimal sign and where the currency goes: `{n}` is the number. */
  decimal: ',' | '.'
  money: string
  hello: string
  bye: string
  order: { subject: string; intro: string; total: string }
  reset: { subject: string; body: string }
  invoice: { subject: string; body: string }
  shipped: { subject: string; body: string }
  code: { subject: string; body: string }
  newsletter: { subject: string; paragraphs: readonly string[] }
}

export const european: readonly Phrases[] = [
  {
    tag: 'en',
    names: ['Olivia Bennett', 'Seán O’Connor', 'Priya Raman', 'Jack Whitfield', 'Zoë Marsh', 'Tom de Souza'],
    cities: ['Leeds', 'Galway', 'Bristol', 'Halifax'],
    decimal: '.',
    money: '£{n}',
    hello: 'Hello {name},',
    bye: 'Warm regards,\nthe Linden & Moss team',
    order: {
      subject: 'Your order {order} is confirmed',
      intro: 'Thank you for your order of {date}. This is what we are packing:',
      total: 'Total',
    },
    reset: {
      subject: 'Reset your password',
      body: 'Somebody, hopefully you, asked for a new password. The link works for 30 minutes:\n{link}\nIf it was not you, nothing has changed and there is nothing to do.',
    },
    invoice: {
      subject: 'Invoice {invoice}',
      body: 'Invoice {invoice} over {amount} for order {order} is due on {due}. Please name the invoice number when you pay.',
    },
    shipped: {
      subject: 'Order {order} is on its way',
      body: 'Your parcel left our warehouse and should reach {city} within three days.\nTracking number: {tracking}',
    },
    code: { subject: 'Your sign-in code', body: '{code} is your code. It is good for ten minutes.' },
    newsletter: {
      subject: 'Slow mornings, warm light: what is new in our workshop',
      paragraphs: [
        'The days are getting shorter, and in the workshop the lamps are lit before the second cup of tea. This month we finished the oak reading stand that so many of you asked for; it folds flat, it holds a heavy cookbook, and no two have the same grain.',
        'Our potter Marit spent the summer learning a wood-ash glaze. The first bowls came out of the kiln last Thursday: grey-green, slightly uneven, and cheerful with soup. There are sixty of them, and when they are gone they are gone.',
        'From the repair bench: a wobbly chair is nearly always a loose joint, not a broken one. Steam it, open it, scrape off the old glue, and clamp it overnight. We wrote the steps down, with drawings, and printed them on one page for your wall.',
        'You receive this letter because you asked for it in our shop. One click at the foot of any letter stops it at once, no questions asked.',
      ],
    },
  },
  {
    tag: 'de',
    names: ['Jürgen Weiß', 'Käthe Größler', 'Mehmet Yıldız', 'Sönke Hüßmann', 'Annelie Böttcher'],
    cities: ['Köln', 'Görlitz', 'Münster', 'Zürich'],
    decimal: ',',
    money: '{n} €',
    hello: 'Guten Tag {name},',
    bye: 'Herzliche Grüße\nIhr Team von Linden & Moss',
    order: {
      subject: 'Bestellbestätigung {order}',
      intro: 'vielen Dank für Ihre Bestellung vom {date}. Das packen wir gerade für Sie:',
      total: 'Summe',
    },
    reset: {
      subject: 'Neues Passwort für Ihr Konto',
      body: 'jemand, hoffentlich Sie, möchte Ihr Passwort ändern. Der Link gilt 30 Minuten:\n{link}\nWaren Sie es nicht, brauchen Sie nichts zu tun.',
    },
    invoice: {
      subject: 'Rechnung {invoice}',
      body: 'die Rechnung {invoice} über {amount} zur Bestellung {order} ist am {due} fällig. Bitte geben Sie bei der Überweisung die Rechnungsnummer an.',
    },
    shipped: {
      subject: 'Ihre Bestellung {order} ist unterwegs',
      body: 'Ihr Paket hat unser Lager verlassen und sollte in drei Tagen in {city} ankommen.\nSendungsnummer: {tracking}',
    },
    code: { subject: 'Ihr Anmeldecode', body: '{code} lautet Ihr Code. Er gilt zehn Minuten.' },
    newsletter: {
      subject: 'Frische Äpfel, große Pläne: Neues aus der Werkstatt',
      paragraphs: [
        'der Herbst ist da, und mit ihm die Kisten voller Boskoop, die unser Nachbar jedes Jahr vor die Tür stellt. Wer uns in der Werkstatt besucht, bekommt einen auf die Hand. Neu im Regal: das Lesepult aus Eiche, faltbar, geölt, jedes Stück mit eigener Maserung.',
        'Marit hat den Sommer über an einer Glasur aus Holzasche gearbeitet. Die ersten sechzig Schüsseln sind aus dem Ofen: graugrün, ein wenig ungleichmäßig und wie gemacht für Kürbissuppe.',
        'Aus der Reparaturecke: Ein wackelnder Stuhl hat fast immer eine lose, keine gebrochene Verbindung. Dämpfen, lösen, alten Leim abkratzen, über Nacht zwingen. Die Anleitung gibt es auf einer Seite zum Aufhängen.',
        'Sie erhalten diesen Brief, weil Sie ihn bei uns bestellt haben. Ein Klick am Ende jedes Briefes, und er kommt nicht mehr.',
      ],
    },
  },
  {
    tag: 'fr',
    names: ['Éloïse Lefèvre', 'François Çelik', 'Anaïs Brûlé', 'Noël Garçon', 'Hélène Castañeda'],
    cities: ['Orléans', 'Besançon', 'Liège', 'Montréal'],
    decimal: ',',
    money: '{n} €',
    hello: 'Bonjour {name},',
    bye: 'Bien à vous,\nl’équipe Linden & Moss',
    order: {
      subject: 'Votre commande {order} est confirmée',
      intro: 'Merci pour votre commande du {date}. Voici ce que nous préparons :',
      total: 'Total',
    },
    reset: {
      subject: 'Réinitialisez votre mot de passe',
      body: 'Quelqu’un, vous sans doute, a demandé un nouveau mot de passe. Ce lien est valable 30 minutes :\n{link}\nSi ce n’était pas vous, rien n’a changé.',
    },
    invoice: {
      subject: 'Facture n° {invoice}',
      body: 'La facture {invoice} de {amount}, commande {order}, est à régler avant le {due}. Merci d’indiquer son numéro avec votre règlement.',
    },
    shipped: {
      subject: 'La commande {order} est en route',
      body: 'Votre colis a quitté notre entrepôt et devrait arriver à {city} sous trois jours.\nNuméro de suivi : {tracking}',
    },
    code: { subject: 'Votre code de connexion', body: '{code} : c’est votre code, valable dix minutes.' },
    newsletter: {
      subject: 'Été indien à l’atelier : bols, chêne et réparations',
      paragraphs: [
        'Les journées raccourcissent et les lampes s’allument tôt à l’atelier. Le lutrin en chêne que vous attendiez est prêt : il se replie, il porte un gros livre de cuisine et chaque pièce a son veinage.',
        'Marit a passé l’été à apprivoiser un émail à la cendre de bois. Les soixante premiers bols sont sortis du four : gris-vert, un rien irréguliers, parfaits pour la soupe à l’oignon.',
        'Côté réparation : une chaise bancale a presque toujours un assemblage décollé, rarement cassé. Vapeur, raclage de la vieille colle, serre-joint une nuit entière. La fiche illustrée tient sur une page.',
        'Vous recevez cette lettre parce que vous l’avez demandée. Un clic en bas de page suffit pour ne plus la recevoir.',
      ],
    },
  },
  {
    tag: 'es',
    names: ['José Ibáñez', 'Begoña Muñoz', 'Íñigo Agüero', 'Lucía Peña', 'Andrés Güell'],
    cities: ['Logroño', 'Málaga', 'Cádiz', 'Bogotá'],
    decimal: ',',
    money: '{n} €',
    hello: '¡Hola, {name}!',
    bye: 'Un saludo,\nel equipo de Linden & Moss',
    order: {
      subject: 'Hemos recibido tu pedido {order}',
      intro: 'Gracias por tu pedido del {date}. Esto es lo que estamos preparando:',
      total: 'Total',
    },
    reset: {
      subject: '¿Olvidaste tu contraseña?',
      body: 'Alguien, esperamos que tú, ha pedido una contraseña nueva. El enlace vale 30 minutos:\n{link}\nSi no fuiste tú, no tienes que hacer nada.',
    },
    invoice: {
      subject: 'Factura {invoice}',
      body: 'La factura {invoice} de {amount} por el pedido {order} vence el {due}. Indica su número al pagar.',
    },
    shipped: {
      subject: 'Tu pedido {order} va en camino',
      body: 'Tu paquete salió de nuestro almacén y debería llegar a {city} en tres días.\nNúmero de seguimiento: {tracking}',
    },
    code: { subject: 'Tu código de acceso', body: '{code} es tu código. Caduca en diez minutos.' },
    newsletter: {
      subject: 'Otoño en el taller: roble, cuencos y sillas que cojean',
      paragraphs: [
        'Los días se acortan y en el taller encendemos la luz antes de la segunda taza. Ya está listo el atril de roble que tantos pedisteis: se pliega, aguanta un buen libro de cocina y no hay dos vetas iguales.',
        'Marit ha pasado el verano aprendiendo un esmalte de ceniza. Los primeros sesenta cuencos salieron del horno el jueves: verde grisáceo, algo irregulares, perfectos para la sopa de ajo.',
        'Del banco de reparaciones: una silla que cojea casi siempre tiene una junta suelta, no rota. Vapor, rascar la cola vieja y una noche entera con sargento. Lo contamos en una sola página.',
        'Recibes esta carta porque la pediste. Con un clic al pie deja de llegar.',
      ],
    },
  },
  {
    tag: 'pl',
    names: ['Łukasz Wiśniewski', 'Małgorzata Żak', 'Paweł Dąbrowski', 'Agnieszka Źrebiec'],
    cities: ['Łódź', 'Kraków', 'Gdańsk'],
    decimal: ',',
    money: '{n} zł',
    hello: 'Dzień dobry {name},',
    bye: 'Pozdrawiamy serdecznie\nzespół Linden & Moss',
    order: {
      subject: 'Potwierdzenie zamówienia {order}',
      intro: 'Dziękujemy za zamówienie z dnia {date}. Właśnie pakujemy:',
      total: 'Razem',
    },
    reset: {
      subject: 'Zmiana hasła',
      body: 'Ktoś, mamy nadzieję że Ty, poprosił o nowe hasło. Odnośnik działa 30 minut:\n{link}\nJeśli to pomyłka, nic się nie zmieniło.',
    },
    invoice: {
      subject: 'Faktura {invoice}',
      body: 'Faktura {invoice} na kwotę {amount} do zamówienia {order} jest płatna do {due}.',
    },
    shipped: {
      subject: 'Zamówienie {order} jest w drodze',
      body: 'Paczka opuściła magazyn i w ciągu trzech dni powinna dotrzeć do miasta {city}.\nNumer przesyłki: {tracking}',
    },
    code: { subject: 'Twój kod logowania', body: 'Kod: {code}. Ważny dziesięć minut.' },
    newsletter: {
      subject: 'Złota jesień w pracowni: dąb, glina i chwiejne krzesła',
      paragraphs: [
        'Dni są coraz krótsze, a w pracowni świeci się już przed drugą herbatą. Gotowy jest dębowy pulpit, o który tak często pytaliście: składa się na płasko i utrzyma najgrubszą książkę kucharską.',
        'Marit przez całe lato uczyła się szkliwa z popiołu. Pierwsze sześćdziesiąt misek wyszło z pieca w czwartek: szarozielone, trochę nierówne, w sam raz na żurek.',
        'Z warsztatu napraw: chwiejne krzesło ma prawie zawsze rozklejone, a nie złamane łączenie. Para, skrobanie starego kleju i noc w ścisku.',
        'Ten list przychodzi, bo o niego prosiliście. Jedno kliknięcie w stopce i przestanie.',
      ],
    },
  },
]
